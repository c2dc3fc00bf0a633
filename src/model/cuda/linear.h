// Multiplies the linear layers of one activation on the GPU: chooses how the input is prepared and
// which kernels multiply it, by the number of rows and the formats of the matrices.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/experts/front.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemv/gemv.h"
#include "kernels/cuda/persistent/program.h"
#include "kernels/cuda/rows/gated_heads.h"
#include "model/cuda/sizes.h"
#include "model/cuda/weights.h"

namespace walsh {

// One product of an input computes y[m][ldy] (+)= linear(input) + bias.
struct CudaMatmul {
  const Linear* linear = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  bool add = false;
};

// Says where the rows of an input are, and the gates of their heads, which a mixer's results may
// have.
struct CudaSource {
  cuda::InputSource rows;
  cuda::HeadGates gates;  // cuda::can_prepare(gates), or none
};

// Says what a launch in front of products makes beside their inputs and small products.
struct CudaFront {
  std::span<const cuda::InputForm> forms;
  const cuda::FrontRoute* route = nullptr;
};

class CudaLinear {
 public:
  // Allocates workspaces for up to max_rows rows of every input.
  CudaLinear(const CudaSizes& sizes, int64_t max_rows);

  // With a front the first item is a product for which is_in_front() holds.
  void multiply(const Input& input, const CudaSource& source, std::span<const CudaMatmul> items,
                int64_t m, cuda::Stream stream, const CudaFront* front = nullptr);
  // Returns whether products of m rows with a matrix can be computed where inputs are prepared.
  static bool is_in_front(const Linear& linear, int64_t m);
  // Adds the products of one row to a program. Returns false if they cannot be a part of it.
  bool add_to(cuda::PersistentProgram& program, const Input& input, const cuda::InputSource& source,
              std::span<const CudaMatmul> items);
  // Returns whether coded matrices are multiplied with int8 inputs, as programs do it.
  bool has_steps() const { return !exact_ && !rotate_weights_; }

  // Says what int8 products of one input need: forms that are made once, and the products.
  struct Coded {
    std::vector<cuda::InputForm> forms;
    std::vector<cuda::Matmul> products;
  };
  Coded describe(const Input& input, std::span<const CudaMatmul> items);

 private:
  // The workspaces have these sizes.
  struct Extent {
    int64_t stride = 0;          // of float and 16-bit rows
    int64_t quantized_rows = 0;  // of int8 inputs that are made at once
    int64_t row_bytes = 2;       // per value of rows for long prompts
    uint64_t scratch = 0;        // for dequantized weights
    bool prompts = false;        // cuBLASLt is used
    bool rows = false;           // cuBLASLt or products that rotate weights are used
  };
  static Extent extent(const CudaSizes& sizes, int64_t max_rows);
  void make_batch_space();

  void coded(const Coded& coded, int64_t m, cuda::Stream stream);
  // Returns whether the kernels for batches multiply m rows.
  bool in_batch(const Input& input, const Linear& linear, int64_t m) const;
  // Computes small products, prepares the inputs of coded ones, and does what `front` asks for.
  void in_front(const CudaSource& source, std::span<const CudaMatmul> items,
                std::span<const cuda::InputForm> forms, const CudaFront* front, int64_t m,
                cuda::Stream stream);
  void dense(const CudaSource& source, std::span<const CudaMatmul> items, int64_t m,
             cuda::Stream stream);
  void rows(const CudaSource& source, std::span<const CudaMatmul> items, int64_t m,
            cuda::Stream stream);
  // Computes products that rotate weights back (weight_side.h), with float rows for at most 8 rows.
  void weight_side(const CudaSource& source, std::span<const CudaMatmul> items, int64_t m,
                   cuda::Stream stream);
  void rows_of_type(DType type, const CudaSource& source, std::span<const CudaMatmul> items,
                    int64_t m, cuda::Stream stream);

  Extent extent_;
  bool exact_;                                // 16-bit rows for coded weights whatever m is
  bool rotate_weights_;                       // where there are rotations
  std::vector<cuda::Activations> quantized_;  // as ModelSteps::buffers
  cuda::BatchSpace batch_;                    // for more rows than decoding has, where it helps
  cuda::Buffer float_rows_;                   // [16][stride], for plain weights
  cuda::Buffer rows_;                         // [max_rows][stride], if Extent::rows
  std::unique_ptr<cuda::DequantizedGemm> gemm_;
};

}  // namespace walsh
