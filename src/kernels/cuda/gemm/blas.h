// Multiplies matrices by cuBLASLt, which is loaded when it is first needed. So a program that
// multiplies no long prompt runs without the library, and one binary runs with or without it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/cuda/device.h"
#include "base/dtype.h"

namespace walsh::cuda {

// Describes y[t * ldy + row] (+)= bias[row] + sum_c w[row][c] x[t][c], with everything on the
// device. w and x have one type; sums are float32 (f32: products too).
struct BlasMatmul {
  DType type = DType::bf16;
  const void* w = nullptr;  // Its shape is [rows][cols].
  int64_t rows = 0, cols = 0;
  const void* x = nullptr;  // Its shape is [m][ldx].
  int64_t m = 0, ldx = 0;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  bool add = false;
};

// Describes sums[i][j] += sum over t of x[t][i] x[t][j], with everything on the device. The values
// are bf16, whose products are exact, and the sums float32. Both triangles are written; they need
// not be equal bit by bit.
struct BlasMoments {
  const void* x = nullptr;  // It is bf16 [m][ldx].
  int64_t m = 0, ldx = 0, width = 0;
  float* sums = nullptr;  // Its shape is [width][width].
};

class Blas {
 public:
  static constexpr uint64_t kWorkspaceBytes = uint64_t{32} << 20;

  // Loads the library. Throws io naming it if it cannot be loaded.
  Blas();
  ~Blas();
  Blas(Blas&&) noexcept;
  Blas& operator=(Blas&&) noexcept;

  static std::string unavailable_reason();  // Returns an empty text if the library can be used.

  // Multiplies. The first product of a shape asks the library for an algorithm; later ones allocate
  // nothing. There is one workspace, so products must be ordered on one stream at a time.
  void multiply(const BlasMatmul& product, Stream stream);
  // Adds moments. The same shapes, one after the other, give the same bits on a device.
  void add(const BlasMoments& moments, Stream stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh::cuda
