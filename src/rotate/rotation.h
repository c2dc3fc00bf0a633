// Rotates rows of weights and activations by random signs and a normalized Hadamard transform per
// block (docs/formats/README.md). Since y = W x = (W R^T)(R x), weights are stored rotated, and x
// is rotated once.
//
// Source: QuIP# (Tseng et al. 2024) and QuaRot (Ashkboos et al. 2024) for the randomized Hadamard
// transform; the sign hash is murmur3's finalizer.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace walsh {

enum class RotationKind : uint8_t { none, hadamard, qr };

// Describes a rotation, which can be rebuilt from this bit for bit. It is stored per tensor and
// pass.
struct Rotation {
  RotationKind kind = RotationKind::hadamard;
  int block = 128;  // It is a power of two from 32 to 1024.
  // Determines the signs (hadamard) or the matrix (qr).
  uint32_t seed = 42;
  // It is false only for measuring what the signs contribute.
  bool signs = true;

  bool operator==(const Rotation&) const = default;
};

std::string_view rotation_kind_name(RotationKind kind);
RotationKind parse_rotation_kind(std::string_view name);  // It throws usage for an unknown name.

// Names columns that are transformed together. A row of length k (a multiple of 32) is cut into as
// many blocks as fit, then a tail in descending powers of two down to 32.
struct Segment {
  int64_t offset;
  int size;
};
std::vector<Segment> rotation_segments(int64_t k, int block);

// Returns -1 or +1 for a column, from bit 31 of fmix32(column * 0x9E3779B9 + seed).
float rotation_sign(uint32_t seed, uint64_t column);

// Returns the seed of pass `pass` (0, or 1 for a residual) of all tensors that read the activation
// `activation`.
uint32_t rotation_seed(uint32_t seed, std::string_view activation, int pass);
// Returns the same for an activation that has a number instead of a name.
uint32_t rotation_seed(uint32_t seed, uint32_t number, int pass);

// Adds up what it costs to make the matrices of qr rotations, each distinct one once: size^3 for
// the time (about a nanosecond each) and 512 size^2 for the memory. The cost has to be bounded
// because a file can ask for many of them in few bytes.
class OrthogonalWork {
 public:
  // Adds the matrices of one rotation of rows of length k. Kinds other than qr cost nothing.
  void add(const Rotation& rotation, int64_t k);
  double total() const { return total_; }

 private:
  std::set<std::pair<uint32_t, int>> known_;  // A matrix has a seed and a size.
  double total_ = 0;
};

// Returns how much OrthogonalWork a file of `file_bytes` may ask for at most. Models of any size
// with blocks of up to 1024 stay far below it.
double most_orthogonal_work(uint64_t file_bytes);

// Applies a rotation to rows of one length. The same input gives the same bits on every instruction
// set, because the butterfly fixes the order of additions.
class Rotator {
 public:
  // k is the padded row length, a multiple of 32 (any number if the kind is none).
  Rotator(const Rotation& rotation, int64_t k);
  ~Rotator();
  Rotator(Rotator&&) noexcept;
  Rotator& operator=(Rotator&&) noexcept;

  const Rotation& rotation() const;
  int64_t size() const;
  void apply(float* row) const;   // It computes row[k] <- R row.
  void invert(float* row) const;  // It computes row[k] <- R^T row.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh
