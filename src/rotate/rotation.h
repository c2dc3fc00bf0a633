// Rotates weight rows and activations: random signs, then a normalized Hadamard transform per block
// (docs/formats/README.md). y = W x = (W R^T)(R x): weights are stored rotated, x is rotated once.
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

// A rotation can be rebuilt from this bit for bit. It is stored per tensor and pass.
struct Rotation {
  RotationKind kind = RotationKind::hadamard;
  int block = 128;     // a power of two, 32..1024
  uint32_t seed = 42;  // of the signs (hadamard) or of the matrix (qr)
  bool signs = true;   // false only for measuring what the signs contribute

  bool operator==(const Rotation&) const = default;
};

std::string_view rotation_kind_name(RotationKind kind);
RotationKind parse_rotation_kind(std::string_view name);  // throws usage

// A row of length k (a multiple of 32) is cut into as many blocks as fit, then a tail in descending
// powers of two down to 32.
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
// Returns the same for activations that have a number instead of a name.
uint32_t rotation_seed(uint32_t seed, uint32_t number, int pass);

// Adds up the cost of making the matrices of qr rotations, each distinct one once: size^3 for the
// time (about a nanosecond each) and 512 size^2 for the memory. A file can ask for many of them in
// few bytes.
class OrthogonalWork {
 public:
  // Adds the matrices of one rotation of rows of length k; kinds other than qr cost nothing.
  void add(const Rotation& rotation, int64_t k);
  double total() const { return total_; }

 private:
  std::set<std::pair<uint32_t, int>> known_;  // seed, size
  double total_ = 0;
};

// Returns the most OrthogonalWork that a file of `file_bytes` may ask for: models of any size with
// blocks of up to 1024 stay far below it.
double most_orthogonal_work(uint64_t file_bytes);

// Applies a rotation to rows of one length. The same input gives the same bits on every instruction
// set (the order of additions is fixed by the butterfly).
class Rotator {
 public:
  // k is the padded row length, a multiple of 32 (any k when kind is none).
  Rotator(const Rotation& rotation, int64_t k);
  ~Rotator();
  Rotator(Rotator&&) noexcept;
  Rotator& operator=(Rotator&&) noexcept;

  const Rotation& rotation() const;
  int64_t size() const;
  void apply(float* row) const;   // row[k] <- R row
  void invert(float* row) const;  // row[k] <- R^T row

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh
