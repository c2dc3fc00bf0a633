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
  TwoSidedProduct(const EncodeCall& call, TwoSidedMatrix& matrix)
      : call_(call),
        tensor_(call.tensor),
        storage_(call.storage),
        matrix_(matrix),
        code_(tensor_.format->product),
        rotator_(tensor_.rotation[0], matrix.cols()),
        pointers_(static_cast<size_t>(tensor_.rows * matrix.cols() / kProductValues)),
        negative_(static_cast<size_t>(tensor_.rows * matrix.cols())) {}

  void run() {
    read();
    encode();
    store();
    encode_each_row(call_, [&](int64_t row, float* x) {
      std::vector<float> decoded(static_cast<size_t>(matrix_.cols()));
      subtract_decoded(tensor_, 0, rotator_, row, decoded.data(), x);
    });
  }

 private:
  void read() {
    if (code_.own_codebook) {
      const Codebook256 trained =
          train_codebook(code_, rotator_, tensor_.rows, tensor_.cols, call_.read_rows, call_.pool);
      std::memcpy(storage_.arrays[2].data(), trained.data(), trained.size());
    }
    for_each_row(call_, [&](int64_t row, float* x) {
      rotate_row(rotator_, x, tensor_.cols, row, matrix_.row(row));
    });
  }

  void encode() {
    std::vector<std::optional<ProductWorker>> workers(static_cast<size_t>(call_.pool.size()));
    for_blocks(matrix_, code_.group, call_.pool, [&](const Block& block, int thread) {
      auto& worker = workers[static_cast<size_t>(thread)];
      if (!worker) worker.emplace(matrix_, code_, product_codebook(tensor_), call_.options);
      encode_block(*worker, block);
    });
  }

  void store() {
    const bool searched = call_.options.scale_rule == ScaleRule::search;
    std::vector<double> factors(static_cast<size_t>(tensor_.rows), 1.0);
    if (searched) factors = matrix_.row_factors(call_.pool);
    const int64_t padded = matrix_.cols(), groups = product_groups(code_, padded);
    call_.pool.for_each(tensor_.rows, [&](int64_t row) {
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

  const EncodeCall& call_;
  const Tensor& tensor_;
  const TensorStorage& storage_;
  TwoSidedMatrix& matrix_;
  const ProductCode& code_;
  Rotator rotator_;
  // These are as ProductSearch::encode gives them, for all rows.
  std::vector<uint8_t> pointers_, negative_;
};

}  // namespace

void encode_product_two_sided(const EncodeCall& call) {
  TwoSidedMatrix matrix(*call.feedback, *call.outputs);
  TwoSidedProduct(call, matrix).run();
}

}  // namespace walsh::detail
