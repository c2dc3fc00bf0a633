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
  TwoSidedScalar(const EncodeCall& call, TwoSidedMatrix& matrix)
      : call_(call),
        matrix_(matrix),
        last_(call.tensor.format->passes - 1),
        passes_(call.tensor, call.storage),
        rows_(call.tensor.format->code[last_], call.options, call.tensor.rows, matrix.cols()) {}

  void run() {
    read();
    encode();
    store();
    encode_each_row(call_, [&](int64_t row, float* x) {
      std::vector<float> buffer(static_cast<size_t>(passes_.padded()));
      for (int pass = 0; pass <= last_; ++pass)
        passes_.subtract(pass, row, buffer.data(), x);
    });
  }

 private:
  static constexpr int64_t kBlockCols = 128;

  // Fills the matrix with what the passes before the last one leave over.
  void read() {
    for_each_row(call_, [&](int64_t row, float* x) {
      std::vector<float> buffer(static_cast<size_t>(passes_.padded()));
      for (int pass = 0; pass < last_; ++pass)
        passes_.encode(pass, call_.options, row, buffer.data(), x);
      passes_.rotate(last_, row, x, matrix_.row(row));
    });
  }

  void encode() {
    const int64_t cols = std::min(matrix_.cols(), std::max(kBlockCols, rows_.group()));
    std::vector<std::optional<TwoSidedRows>> of_threads(static_cast<size_t>(call_.pool.size()));
    for_blocks(matrix_, cols, call_.pool, [&](const Block& block, int thread) {
      auto& rows = of_threads[static_cast<size_t>(thread)];
      if (!rows) rows.emplace(matrix_, cols);
      encode_block(*rows, block);
    });
  }

  void store() {
    std::vector<double> factors(static_cast<size_t>(call_.tensor.rows), 1.0);
    if (rows_.has_factors()) factors = matrix_.row_factors(call_.pool);
    call_.pool.for_each(call_.tensor.rows, [&](int64_t row) {
      rows_.store(row, factors[static_cast<size_t>(row)], passes_.output(last_, row));
    });
  }

  void encode_block(TwoSidedRows& rows, const Block& block) {
    rows.start(block);
    for (int64_t r = block.row; r < block.row + block.rows; ++r) {
      rows.start_row(r);
      rows_.encode(
          r, block.col, block.col + block.cols, [&](int64_t j) { return rows.target(r, j); },
          [&](int64_t j, float value) { rows.set(r, j, value); });
    }
  }

  const EncodeCall& call_;
  TwoSidedMatrix& matrix_;
  int last_;
  ScalarPasses passes_;
  ScalarRows rows_;
};

}  // namespace

// All rows of the last pass are encoded at once, because errors of a row reach the rows below.
void encode_scalar_two_sided(const EncodeCall& call) {
  TwoSidedMatrix matrix(*call.feedback, *call.outputs);
  TwoSidedScalar(call, matrix).run();
}

}  // namespace walsh::detail
