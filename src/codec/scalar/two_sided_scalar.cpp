#include <algorithm>
#include <optional>
#include <vector>

#include "codec/feedback/two_sided.h"
#include "codec/scalar/scalar_rows.h"
#include "codec/scalar/scalar_tensor.h"

namespace walsh::detail {
namespace {

// Encodes a tensor whose last pass is rounded with errors fed back in both directions.
class TwoSidedScalar {
 public:
  TwoSidedScalar(const Tensor& tensor, const EncodeOptions& options, const TensorStorage& storage,
                 TwoSidedMatrix& matrix)
      : tensor_(tensor),
        options_(options),
        matrix_(matrix),
        last_(tensor.format->passes - 1),
        code_(tensor.format->code[last_]),
        passes_(tensor, storage),
        rows_(code_, options, tensor.rows, matrix.cols()) {}

  // Fills the matrix with what the passes before the last one leave over.
  void read(ReadRows read_rows, ThreadPool& pool) {
    for_each_row(tensor_, read_rows, pool, [&](int64_t row, float* x) {
      std::vector<float> buffer(static_cast<size_t>(passes_.padded()));
      for (int pass = 0; pass < last_; ++pass)
        passes_.encode(pass, options_, row, buffer.data(), x);
      passes_.rotate(last_, row, x, matrix_.row(row));
    });
  }

  void encode(ThreadPool& pool) {
    const int64_t cols = std::min(matrix_.cols(), std::max(kBlockCols, rows_.group()));
    std::vector<std::optional<TwoSidedRows>> of_threads(static_cast<size_t>(pool.size()));
    for_blocks(matrix_, cols, pool, [&](const Block& block, int thread) {
      auto& rows = of_threads[static_cast<size_t>(thread)];
      if (!rows) rows.emplace(matrix_, cols);
      encode_block(*rows, block);
    });
  }

  void store(ThreadPool& pool) {
    std::vector<double> factors(static_cast<size_t>(tensor_.rows), 1.0);
    if (rows_.has_factors()) factors = matrix_.row_factors(pool);
    pool.for_each(tensor_.rows, [&](int64_t row) {
      rows_.store(row, factors[static_cast<size_t>(row)], passes_.output(last_, row));
    });
  }

  void measure(ReadRows read_rows, ThreadPool& pool, ErrorSum& errors) {
    encode_each_row(tensor_, read_rows, pool, errors, [&](int64_t row, float* x) {
      std::vector<float> buffer(static_cast<size_t>(passes_.padded()));
      for (int pass = 0; pass <= last_; ++pass)
        passes_.subtract(pass, row, buffer.data(), x);
    });
  }

 private:
  static constexpr int64_t kBlockCols = 128;

  void encode_block(TwoSidedRows& rows, const Block& block) {
    rows.start(block);
    for (int64_t r = block.row; r < block.row + block.rows; ++r) {
      rows.start_row(r);
      rows_.encode(
          r, block.col, block.col + block.cols, [&](int64_t j) { return rows.target(r, j); },
          [&](int64_t j, float value) { rows.set(r, j, value); });
    }
  }

  const Tensor& tensor_;
  const EncodeOptions& options_;
  TwoSidedMatrix& matrix_;
  int last_;
  const ScalarCode& code_;
  ScalarPasses passes_;
  ScalarRows rows_;
};

}  // namespace

// All rows of the last pass are encoded at once, because errors of a row reach the rows below.
void encode_scalar_two_sided(TileDevice*, const Tensor& tensor, const EncodeOptions& options,
                             const ErrorFeedback& inputs, const ErrorFeedback& outputs,
                             ReadRows read_rows, const TensorStorage& storage, ThreadPool& pool,
                             ErrorSum& errors) {
  TwoSidedMatrix matrix(inputs, outputs);
  TwoSidedScalar encoder(tensor, options, storage, matrix);
  encoder.read(read_rows, pool);
  encoder.encode(pool);
  encoder.store(pool);
  encoder.measure(read_rows, pool, errors);
}

}  // namespace walsh::detail
