#include "io/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <new>
#include <vector>

#include "base/stop.h"

namespace walsh {

std::string Checksum::hex() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

Checksum checksum(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

struct ChecksumStream::State {
  XXH3_state_t* state = XXH3_createState();
  State() {
    if (state == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state);
  }
  ~State() { XXH3_freeState(state); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

namespace {

// Stop requests are checked after each piece, because a mapped file may come from a slow disk.
constexpr size_t kPiece = size_t{16} << 20;

}  // namespace

ChecksumStream::ChecksumStream() : state_(std::make_unique<State>()) {}
ChecksumStream::~ChecksumStream() = default;

void ChecksumStream::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    check_stop();
    const auto piece = bytes.first(std::min(bytes.size(), kPiece));
    XXH3_128bits_update(state_->state, piece.data(), piece.size());
    bytes = bytes.subspan(piece.size());
  }
}

Checksum checksum_without(std::span<const std::byte> bytes, size_t offset, size_t count) {
  const std::vector<std::byte> zeros(count);
  ChecksumStream sum;
  sum.update(bytes.first(offset));
  sum.update(zeros);
  sum.update(bytes.subspan(offset + count));
  return sum.digest();
}

Checksum ChecksumStream::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->state);
  return {hash.low64, hash.high64};
}

}  // namespace walsh
