// Runs a linear layer outside of a model, for other frameworks, with memory of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "codec/scalar/encoder.h"
#include "codec/tensor.h"
#include "kernels/ops.h"

namespace walsh {

// Says how a layer's weights [rows, cols] are stored.
struct LayerForm {
  const Format* format = nullptr;  // the weights are coded in it
  int64_t rows = 0, cols = 0;
  Rotation rotation[2];  // each pass has its own
};

// Describes a matrix in the caller's memory. Its rows have contiguous values, and from row to row
// there are `stride` values.
struct MatrixView {
  const void* data = nullptr;
  DType type = DType::f32;
  int64_t rows = 0, cols = 0, stride = 0;
};

// Describes one array of a stored layer (array_specs), by the suffix of its name, such as "codes",
// "scales" or "codes2".
struct LayerArray {
  std::string name;
  int64_t rows = 0;
  int64_t row_bytes = 0;
};
// Returns the arrays in file order. Throws usage for a dense format or an impossible shape or
// rotation.
std::vector<LayerArray> layer_arrays(const LayerForm& form);
// Returns a tensor over the arrays, given in that order, without copying.
Tensor stored_tensor(const LayerForm& form, std::span<const std::span<const std::byte>> arrays);

// Returns the form of new weights with the format's default block (block = 0) or another one, and a
// seed per pass derived from `seed`. Throws usage for a form that check_recipe refuses and for
// dense formats.
LayerForm make_form(const std::string& type, int64_t rows, int64_t cols,
                    const std::string& rotation, int block, uint32_t seed, Effort effort);

// Throws usage if GPUs have no kernels for layers of this form; `device` is for the message.
void refuse_unsupported(const LayerForm& form, int device);

// Uses the caller's threads: it calls its argument once on each with (thread, threads) and returns
// when all are done. It may use one thread only.
using RunThreads = FunctionRef<void(FunctionRef<void(int, int)>)>;

// Holds a layer's encoded weights and multiplies with them. Const use is thread-safe, also with the
// threads of several callers.
class LinearOperator {
 public:
  // Encodes weights [rows, cols]; throws bad_input for values that are not finite. `nmse`, unless
  // null, receives the squared error relative to the squared weights.
  static LinearOperator encode(const LayerForm& form, const MatrixView& weights,
                               const EncodeOptions& options, ThreadPool& pool, double* nmse);
  // Copies arrays in the order of layer_arrays. Throws bad_input for wrong sizes.
  static LinearOperator restore(const LayerForm& form,
                                std::span<const std::span<const std::byte>> arrays);

  const LayerForm& form() const { return form_; }
  uint64_t bytes() const;  // the layer takes this much memory
  // Returns the same number for layers of one form with the same stored arrays, in every process.
  uint64_t fingerprint() const { return fingerprint_; }
  // Returns copies of the stored arrays, in the order of layer_arrays.
  std::vector<std::vector<std::byte>> arrays() const;
  // Computes y[m][rows] = x[m][cols] W^T with int8 activations as the format prescribes, or float32
  // if `exact`; y has the type and row count of x, with `y_stride` values from row to row.
  void multiply(const MatrixView& x, void* y, int64_t y_stride, bool exact, RunThreads run) const;
  // Writes all rows in the original basis to out[rows * cols].
  void decode(float* out, RunThreads run) const;

 private:
  struct Pass {
    PanelMatrix panels;
    std::shared_ptr<const Rotator> rotator;  // null means that the input is not rotated
  };
  LinearOperator() = default;
  void pack(const Tensor& tensor);
  class Product;

  LayerForm form_;
  uint64_t fingerprint_ = 0;
  std::vector<Pass> passes_;
  std::vector<std::vector<std::byte>> small_;  // those of codes are empty
};

}  // namespace walsh
