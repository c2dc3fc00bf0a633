#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "base/half.h"
#include "codec/feedback/two_sided.h"
#include "codec/product/product.h"
#include "codec/product/product_search.h"
#include "codec/product/product_tensor.h"
#include "codec/product/product_training.h"
#include "codec/scalar/encoder_search.h"

namespace walsh::detail {
namespace {

constexpr double kLeastFactor = 0.5, kLargestFactor = 2;

// Holds what a thread needs to encode.
struct ProductWorker {
  ProductWorker(TwoSidedMatrix& matrix, const ProductCode& code, const int8_t* codebook,
                const EncodeOptions& options)
      : rows(matrix, code.group), search(code, codebook, options) {}

  TwoSidedRows rows;
  ProductSearch search;
};

// Encodes a tensor of a product code. The scale of a group is searched when the group is reached,
// on the values that it should become. Its vectors are then chosen sixteen columns at a time.
class TwoSidedProduct {
 public:
  TwoSidedProduct(const Tensor& tensor, const EncodeOptions& options, const TensorStorage& storage,
                  TwoSidedMatrix& matrix)
      : tensor_(tensor),
        options_(options),
        storage_(storage),
        matrix_(matrix),
        code_(tensor.format->product),
        rotator_(tensor.rotation[0], matrix.cols()),
        pointers_(static_cast<size_t>(tensor.rows * matrix.cols() / kProductValues)),
        negative_(static_cast<size_t>(tensor.rows * matrix.cols())) {}

  void read(ReadRows read_rows, ThreadPool& pool) {
    if (code_.own_codebook) {
      const Codebook256 trained =
          train_codebook(code_, rotator_, tensor_.rows, tensor_.cols, read_rows, pool);
      std::memcpy(storage_.arrays[2].data(), trained.data(), trained.size());
    }
    for_each_row(tensor_, read_rows, pool, [&](int64_t row, float* x) {
      rotate_row(rotator_, x, tensor_.cols, row, matrix_.row(row));
    });
  }

  void encode(ThreadPool& pool) {
    std::vector<std::optional<ProductWorker>> workers(static_cast<size_t>(pool.size()));
    for_blocks(matrix_, code_.group, pool, [&](const Block& block, int thread) {
      auto& worker = workers[static_cast<size_t>(thread)];
      if (!worker) worker.emplace(matrix_, code_, product_codebook(tensor_), options_);
      encode_block(*worker, block);
    });
  }

  void store(ThreadPool& pool) {
    const bool searched = options_.scale_rule == ScaleRule::search;
    std::vector<double> factors(static_cast<size_t>(tensor_.rows), 1.0);
    if (searched) factors = matrix_.row_factors(pool);
    const int64_t padded = matrix_.cols(), groups = product_groups(code_, padded);
    pool.for_each(tensor_.rows, [&](int64_t row) {
      const double factor =
          std::clamp(factors[static_cast<size_t>(row)], kLeastFactor, kLargestFactor);
      uint16_t* scales = storage_.halves(1) + row * groups;
      for (int64_t g = 0; g < groups; ++g) {
        scales[g] = saturated_half(static_cast<float>(double{f16_to_f32(scales[g])} * factor),
                                   kLargestHalf);
      }
      pack_product_row(pointers_.data() + row * padded / kProductValues,
                       negative_.data() + row * padded, padded,
                       storage_.arrays[0].data() + row * product_row_bytes(padded));
    });
  }

  void measure(ReadRows read_rows, ThreadPool& pool, ErrorSum& errors) {
    encode_each_row(tensor_, read_rows, pool, errors, [&](int64_t row, float* x) {
      std::vector<float> decoded(static_cast<size_t>(matrix_.cols()));
      decode_pass_row(tensor_, 0, row, decoded.data());
      rotator_.invert(decoded.data());
      for (int64_t i = 0; i < tensor_.cols; ++i)
        x[i] -= decoded[static_cast<size_t>(i)];
    });
  }

 private:
  void encode_block(ProductWorker& worker, const Block& block) {
    worker.rows.start(block);
    for (int64_t r = block.row; r < block.row + block.rows; ++r) {
      worker.rows.start_row(r);
      encode_group(worker, r, block);
    }
  }

  void encode_group(ProductWorker& worker, int64_t r, const Block& block) {
    float wanted[kProductGroup];
    for (int64_t j = 0; j < block.cols; ++j)
      wanted[j] = worker.rows.target(r, block.col + j);
    const int64_t at = r * matrix_.cols() + block.col;
    uint8_t* pointers = pointers_.data() + at / kProductValues;
    uint8_t* negative = negative_.data() + at;
    const uint16_t half = worker.search.encode(wanted, block.cols, pointers, negative);
    storage_.halves(1)[r * product_groups(code_, matrix_.cols()) + block.col / code_.group] = half;
    for (int64_t j = 0; j < block.cols; j += kProductBlock) {
      float values[kProductBlock];
      worker.rows.block_targets(r, block.col + j, kProductBlock, wanted);
      worker.search.encode_block(wanted, f16_to_f32(half), pointers + j / kProductValues,
                                 negative + j, values);
      for (int64_t i = 0; i < kProductBlock; ++i)
        worker.rows.set(r, block.col + j + i, values[i]);
    }
  }

  const Tensor& tensor_;
  const EncodeOptions& options_;
  const TensorStorage& storage_;
  TwoSidedMatrix& matrix_;
  const ProductCode& code_;
  Rotator rotator_;
  // These are as ProductSearch::encode gives them, for all rows.
  std::vector<uint8_t> pointers_, negative_;
};

}  // namespace

void encode_product_two_sided(TileDevice*, const Tensor& tensor, const EncodeOptions& options,
                              const ErrorFeedback& inputs, const ErrorFeedback& outputs,
                              ReadRows read_rows, const TensorStorage& storage, ThreadPool& pool,
                              ErrorSum& errors) {
  TwoSidedMatrix matrix(inputs, outputs);
  TwoSidedProduct encoder(tensor, options, storage, matrix);
  encoder.read(read_rows, pool);
  encoder.encode(pool);
  encoder.store(pool);
  encoder.measure(read_rows, pool, errors);
}

}  // namespace walsh::detail
