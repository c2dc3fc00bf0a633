// Multiplies the linear layers of one activation on the GPU. It chooses by the number of rows and
// the formats of the matrices how the input is prepared and which kernels multiply it.
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

// Describes one product of an input: y[m][ldy] = linear(input) + bias, or y += the same.
struct CudaMatmul {
  const Linear* linear = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;
  bool add = false;
};

// Says where the rows of an input are, and which gates they have if they are a mixer's results.
struct CudaSource {
  cuda::InputSource rows;
  cuda::HeadGates gates;  // Either cuda::can_prepare(gates) holds, or there are none.
};

// Says what the launch that prepares inputs and computes small products also has to do.
struct CudaFront {
  std::span<const cuda::InputForm> forms;
  const cuda::FrontRoute* route = nullptr;
};

class CudaLinear {
 public:
  // Allocates workspaces for up to max_rows rows of every input.
  CudaLinear(const CudaSizes& sizes, int64_t max_rows);

  // Computes all products of an input. With a front, is_in_front() has to hold for the first
  // product.
  void multiply(const Input& input, const CudaSource& source, std::span<const CudaMatmul> items,
                int64_t m, cuda::Stream stream, const CudaFront* front = nullptr);
  // Returns whether the launch that prepares inputs can also compute products of m rows with this
  // matrix.
  static bool is_in_front(const Linear& linear, int64_t m);
  // Adds the products of one row to a program. Returns false if they cannot be a part of it.
  bool add_to(cuda::PersistentProgram& program, const Input& input, const cuda::InputSource& source,
              std::span<const CudaMatmul> items);
  // Returns whether coded matrices are multiplied with int8 inputs, as programs require.
  bool has_steps() const { return !exact_ && !rotate_weights_; }

  // Holds the coded products of one input and the int8 forms that they need, each made once.
  struct Coded {
    std::vector<cuda::InputForm> forms;
    std::vector<cuda::Matmul> products;
  };
  Coded describe(const Input& input, std::span<const CudaMatmul> items);

 private:
  // Holds the sizes of the workspaces.
  struct Extent {
    int64_t stride = 0;          // Float rows and 16-bit rows are this many values apart.
    int64_t quantized_rows = 0;  // This many rows of int8 inputs are made at once.
    int64_t row_bytes = 2;       // A value of a row takes this many bytes for long prompts.
    uint64_t scratch = 0;        // Dequantized weights need this many bytes.
    bool prompts = false;        // It says whether cuBLASLt is used.
    // Says whether cuBLASLt or products that rotate weights are used.
    bool rows = false;
  };
  static Extent extent(const CudaSizes& sizes, int64_t max_rows);
  void make_batch_space();

  void coded(const Coded& coded, int64_t m, cuda::Stream stream);
  // Returns whether the kernels for batches multiply m rows with this matrix.
  bool in_batch(const Input& input, const Linear& linear, int64_t m) const;
  // Computes small products, prepares the inputs of coded ones, and does what `front` asks for, in
  // one launch.
  void in_front(const CudaSource& source, std::span<const CudaMatmul> items,
                std::span<const cuda::InputForm> forms, const CudaFront* front, int64_t m,
                cuda::Stream stream);
  void dense(const CudaSource& source, std::span<const CudaMatmul> items, int64_t m,
             cuda::Stream stream);
  void rows(const CudaSource& source, std::span<const CudaMatmul> items, int64_t m,
            cuda::Stream stream);
  // Computes products that rotate weights back (weight_side.h). Up to 8 rows are float rows.
  void weight_side(const CudaSource& source, std::span<const CudaMatmul> items, int64_t m,
                   cuda::Stream stream);
  void rows_of_type(DType type, const CudaSource& source, std::span<const CudaMatmul> items,
                    int64_t m, cuda::Stream stream);
  std::vector<cuda::RowMatmul> prepare_rows(const CudaSource& source,
                                            std::span<const CudaMatmul> items, void* to, DType type,
                                            int64_t m, cuda::Stream stream);

  Extent extent_;
  bool exact_;                                // If true, coded weights always get 16-bit rows.
  bool rotate_weights_;                       // It is true only if the model has rotations.
  std::vector<cuda::Activations> quantized_;  // They are in the order of ModelSteps::buffers.
  // It multiplies more rows than decoding has, where that pays off.
  cuda::BatchSpace batch_;
  cuda::Buffer float_rows_;  // The shape is [16][stride] and is for plain weights.
  cuda::Buffer rows_;        // The shape is [max_rows][stride], if Extent::rows.
  std::unique_ptr<cuda::DequantizedGemm> gemm_;
};

}  // namespace walsh
