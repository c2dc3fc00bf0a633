// Holds what the encoders of whole tensors share: checked source rows, their rotation, and the
// memory of the tensor that is being encoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "codec/encode/encode_tensor.h"
#include "codec/tensor.h"
#include "rotate/rotation.h"

namespace walsh {

class ErrorFeedback;

namespace detail {

class TileDevice;

// Holds the arrays of a tensor in one heap buffer, writable while it is encoded.
struct TensorStorage {
  AlignedArray<std::byte> bytes;
  std::vector<std::span<std::byte>> arrays;  // They are in the order of array_specs.

  uint16_t* halves(size_t array) const { return reinterpret_cast<uint16_t*>(arrays[array].data()); }
};
std::shared_ptr<TensorStorage> allocate_tensor(const Format& format, int64_t rows, int64_t cols);

// Throws bad_input for a value, with its position.
[[noreturn]] void refuse_value(std::string what, int64_t row, int64_t col);
// Reads source rows [begin, end) into out[(end - begin) * cols]. Refuses NaN and infinity.
void read_finite_rows(ReadRows read_rows, int64_t begin, int64_t end, int64_t cols, float* out);
// Refuses NaN and infinity in a dense tensor, like the encoders of dense tensors.
void refuse_not_finite(const Tensor& tensor, ThreadPool& pool);
// Writes the rotated row x[cols], padded with zeros, to out[rotator.size()]. Refuses values that
// overflow. Messages name `row`.
void rotate_row(const Rotator& rotator, const float* x, int64_t cols, int64_t row, float* out);

double squared_length(const float* x, int64_t n);
// Subtracts a row of a pass, decoded and rotated back, from x[cols]. It overwrites
// buffer[rotator.size()].
void subtract_decoded(const Tensor& tensor, int pass, const Rotator& rotator, int64_t row,
                      float* buffer, float* x);

// Adds up squared errors and norms in the order of the rows, whichever thread computed them, so
// that sums do not depend on threads.
class ErrorSum {
 public:
  explicit ErrorSum(int64_t rows) : errors_(static_cast<size_t>(rows)), norms_(errors_.size()) {}
  void set(int64_t row, double error, double norm) {
    errors_[static_cast<size_t>(row)] = error;
    norms_[static_cast<size_t>(row)] = norm;
  }
  // Writes the sums. Either pointer may be null.
  void total(double* squared_error, double* squared_norm) const;

 private:
  std::vector<double> errors_, norms_;
};

// Holds what the encoder of a tensor is asked for: to encode the rows that `read_rows` gives into
// `storage`, to which `tensor` is bound, and to add up the errors. The bytes do not depend on the
// number of threads, the instruction set or the device. Encoders throw as encode_tensor.
struct EncodeCall {
  const Tensor& tensor;
  const EncodeOptions& options;
  ReadRows read_rows;
  const TensorStorage& storage;
  ThreadPool& pool;
  ErrorSum& errors;
  // Errors of columns and of outputs are fed back with these, unless they are null.
  const ErrorFeedback* feedback = nullptr;
  const ErrorFeedback* outputs = nullptr;
  TileDevice* device = nullptr;  // It searches the tiles, unless it is null.
};

// Calls body(row, x[cols]) for the source rows of a tensor, from the threads of the pool. body may
// change x.
void for_each_row(const EncodeCall& call, FunctionRef<void(int64_t row, float* x)> body);
// Calls encode(row, x[cols]) for the source rows of a tensor, from the threads of the pool. encode
// writes the row's codes and leaves the difference between source and decoded row in x.
void encode_each_row(const EncodeCall& call, FunctionRef<void(int64_t row, float* x)> encode);
// Measures the errors of rows [begin, end) of a tensor with one pass, which have been stored.
void measure_rows(const EncodeCall& call, const Rotator& rotator, int64_t begin, int64_t end);

}  // namespace detail
}  // namespace walsh
