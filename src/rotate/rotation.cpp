#include "rotate/rotation.h"

#include <bit>
#include <cmath>

#include "base/cpu.h"
#include "base/random.h"
#include "rotate/hadamard.h"
#include "rotate/orthogonal.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int kMinBlock = 32, kMaxBlock = 1024;

void check(const Rotation& rotation, int64_t k) {
  if (rotation.kind == RotationKind::none) return;
  const int block = rotation.block;
  if (block < kMinBlock || block > kMaxBlock ||
      !std::has_single_bit(static_cast<unsigned>(block))) {
    throw Error(ErrorCode::bad_input, "rotation",
                "block is " + std::to_string(block) + ", expected a power of two from 32 to 1024");
  }
  if (k < kMinBlock || k % kMinBlock != 0) {
    throw Error(ErrorCode::bad_input, "rotation",
                "row length is " + std::to_string(k) + ", expected a multiple of 32");
  }
}

}  // namespace

namespace detail {

HadamardFunction hadamard_function() {
  switch (current_isa()) {
    case Isa::ref:
      return hadamard_ref;
    case Isa::avx2:
      return hadamard_avx2;
    default:
      return hadamard_avx512;
  }
}

}  // namespace detail

std::string_view rotation_kind_name(RotationKind kind) {
  switch (kind) {
    case RotationKind::none:
      return "none";
    case RotationKind::hadamard:
      return "hadamard";
    case RotationKind::qr:
      return "qr";
  }
  return "?";
}

RotationKind parse_rotation_kind(std::string_view name) {
  for (RotationKind kind : {RotationKind::none, RotationKind::hadamard, RotationKind::qr}) {
    if (rotation_kind_name(kind) == name) return kind;
  }
  throw Error(ErrorCode::usage, "--rotation",
              "unknown rotation '" + std::string(name) + "', expected hadamard, qr or none");
}

std::vector<Segment> rotation_segments(int64_t k, int block) {
  std::vector<Segment> segments;
  int64_t offset = 0;
  for (int size = block; size >= kMinBlock; size /= 2) {
    for (; k - offset >= size; offset += size)
      segments.push_back({offset, size});
  }
  return segments;
}

float rotation_sign(uint32_t seed, uint64_t column) {
  const uint32_t hash = fmix32(static_cast<uint32_t>(column) * 0x9E3779B9u + seed);
  return hash >> 31 != 0 ? -1.0f : 1.0f;
}

// fmix32 is a bijection, so one seed never repeats among fewer than 2^31 numbers.
uint32_t rotation_seed(uint32_t seed, uint32_t number, int pass) {
  return fmix32(fmix32(seed) + 2 * number + static_cast<uint32_t>(pass) + 1);
}

// Names are hashed with FNV-1a.
uint32_t rotation_seed(uint32_t seed, std::string_view activation, int pass) {
  uint32_t hash = 0x811c9dc5;
  for (const char c : activation)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
  return rotation_seed(seed, hash, pass);
}

void OrthogonalWork::add(const Rotation& rotation, int64_t k) {
  if (rotation.kind != RotationKind::qr) return;
  for (int size = rotation.block; size >= kMinBlock; k %= size, size /= 2) {
    if (k < size || !known_.emplace(rotation.seed, size).second) continue;
    const double n = size;
    total_ += n * n * (n + 512);
  }
}

double most_orthogonal_work(uint64_t file_bytes) {
  return 0x1p34 + 0x1p10 * static_cast<double>(file_bytes);
}

struct Rotator::Impl {
  Rotation rotation;
  int64_t k = 0;
  std::vector<Segment> segments;
  detail::HadamardFunction hadamard = nullptr;
  // The Hadamard rotation has one per column: sign / sqrt(segment size).
  std::vector<float> factors;
  // The qr rotation has one per segment.
  std::vector<std::shared_ptr<const detail::OrthogonalMatrix>> matrices;

  void multiply_factors(float* row) const {
    const float* f = factors.data();
    for (int64_t i = 0; i < k; ++i)
      row[i] *= f[i];
  }

  void multiply_matrices(float* row, bool inverse) const {
    std::vector<float> scratch(static_cast<size_t>(rotation.block));
    for (size_t s = 0; s < segments.size(); ++s) {
      const detail::OrthogonalMatrix& m = *matrices[s];
      detail::multiply_in_place(inverse ? m.inverse : m.forward, m.size, row + segments[s].offset,
                                scratch.data());
    }
  }

  void transform(float* row) const {
    for (const Segment& s : segments)
      hadamard(row + s.offset, s.size);
  }
};

Rotator::Rotator(const Rotation& rotation, int64_t k) : impl_(std::make_unique<Impl>()) {
  check(rotation, k);
  impl_->rotation = rotation;
  impl_->k = k;
  if (rotation.kind == RotationKind::none) return;
  impl_->segments = rotation_segments(k, rotation.block);
  if (rotation.kind == RotationKind::qr) {
    for (const Segment& s : impl_->segments)
      impl_->matrices.push_back(detail::orthogonal_matrix(rotation.seed, s.size));
    return;
  }
  impl_->hadamard = detail::hadamard_function();
  impl_->factors.resize(static_cast<size_t>(k));
  for (const Segment& s : impl_->segments) {
    const float norm = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.size)));
    for (int64_t i = s.offset; i < s.offset + s.size; ++i) {
      const float sign =
          rotation.signs ? rotation_sign(rotation.seed, static_cast<uint64_t>(i)) : 1.0f;
      impl_->factors[static_cast<size_t>(i)] = sign * norm;
    }
  }
}

Rotator::~Rotator() = default;
Rotator::Rotator(Rotator&&) noexcept = default;
Rotator& Rotator::operator=(Rotator&&) noexcept = default;

const Rotation& Rotator::rotation() const {
  return impl_->rotation;
}

int64_t Rotator::size() const {
  return impl_->k;
}

void Rotator::apply(float* row) const {
  switch (impl_->rotation.kind) {
    case RotationKind::none:
      return;
    case RotationKind::hadamard:
      impl_->multiply_factors(row);
      impl_->transform(row);
      return;
    case RotationKind::qr:
      impl_->multiply_matrices(row, false);
  }
}

void Rotator::invert(float* row) const {
  switch (impl_->rotation.kind) {
    case RotationKind::none:
      return;
    case RotationKind::hadamard:
      impl_->transform(row);
      impl_->multiply_factors(row);
      return;
    case RotationKind::qr:
      impl_->multiply_matrices(row, true);
  }
}

}  // namespace walsh
