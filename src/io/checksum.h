// Computes XXH3-128 checksums of files' contents. They find damage but do not authenticate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace walsh {

struct Checksum {
  uint64_t low = 0, high = 0;

  bool operator==(const Checksum&) const = default;
  // Returns 32 lower-case hex digits, high half first, as xxhsum prints them.
  std::string hex() const;
};

Checksum checksum(std::span<const std::byte> bytes);

// Hashes as if the `count` bytes at `offset` were zero, for a file that contains its own checksum.
// The range must lie inside `bytes`.
Checksum checksum_without(std::span<const std::byte> bytes, size_t offset, size_t count);

// Hashes pieces one after another; the result is that of their concatenation.
class ChecksumStream {
 public:
  ChecksumStream();
  ~ChecksumStream();
  ChecksumStream(const ChecksumStream&) = delete;
  ChecksumStream& operator=(const ChecksumStream&) = delete;

  void update(std::span<const std::byte> bytes);
  // Returns the checksum of everything so far; more may follow.
  Checksum digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace walsh
