// One sequence being evaluated: the KV cache, the workspaces and the forward pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned.h"
#include "base/function_ref.h"
#include "kernels/ops.h"
#include "model/kv_cache.h"
#include "model/model.h"

namespace walsh {

struct SessionOptions {
  int64_t max_positions = 0;                // 0: the model's own maximum, at most 4096
  uint64_t max_bytes = uint64_t{64} << 30;  // of KV cache and workspaces together
};

// Receives the logits of one token: its index in the tokens given to forward() and [vocab] values,
// valid during the call.
using LogitSink = FunctionRef<void(int64_t index, std::span<const float> logits)>;

// Not for use by several threads at once; several sessions may share a model if they take turns
// (they share its thread pool). The same tokens give the same logits for any number of threads.
class Session {
 public:
  // Allocates everything that forward() needs. Throws limit with the numbers if the memory exceeds
  // the limit; usage if more positions are asked for than the model has.
  explicit Session(const Model& model, const SessionOptions& options = {});

  // Evaluates `tokens` after what is in the cache and calls `sink` in order for each index >=
  // first_logit (none if that is tokens.size()). Throws usage for a token id outside the
  // vocabulary or if the cache would overflow; the cache is then unchanged.
  void forward(std::span<const int32_t> tokens, LogitSink sink, int64_t first_logit = 0);

  void reset() { position_ = 0; }
  // Keeps the first `positions` tokens.
  void truncate(int64_t positions);
  int64_t position() const { return position_; }
  int64_t capacity() const { return cache_.capacity(); }
  const Model& model() const { return model_; }

 private:
  // A prepared input of the current rows: int8 planes, or float32 rows of `stride`.
  struct Workspace {
    ActivationsI8 quantized;
    AlignedArray<float> rows;
    int64_t stride = 0;
  };
  // One product of a fused dispatch: y[m][ldy] = linear(its input) + bias.
  struct Product {
    const Linear* linear;
    const Input* input;
    float* y;
    int64_t ldy;
  };

  void chunk(std::span<const int32_t> tokens, LogitSink sink, int64_t first_index,
             int64_t first_logit);
  void embed(std::span<const int32_t> tokens);
  void run_layer(int64_t index, int64_t m, int64_t skip);
  void prepare(const Input& input, const float* x, int64_t ldx, int64_t m);
  void prepare_row(const Input& input, const float* x, int64_t row, float* scratch);
  void multiply(std::initializer_list<Product> products, int64_t m);
  void multiply_units(const Product& product, int64_t begin, int64_t end, int64_t m);
  void store_keys(const Layer& layer, int64_t index, int64_t m);
  void attend(const Layer& layer, int64_t index, int64_t m, int64_t skip);
  void mlp(const Layer& layer, int64_t m, float* x);
  void add_rows(const float* branch, int64_t m, float* x);
  void logits(int64_t m, LogitSink sink, int64_t first_index, int64_t first_row);
  template <typename Body>
  void for_rows(int64_t m, Body&& body);

  const Model& model_;
  const Ops& ops_;
  KvCache cache_;
  int64_t position_ = 0;
  int64_t max_rows_;                   // tokens evaluated together
  int64_t logit_rows_;                 // rows of logits computed together
  std::vector<Workspace> workspaces_;  // as Model::buffers
  // [max_rows] rows, each row 64-byte aligned
  AlignedArray<float> x_, branch_, q_, k_, v_, attended_, gate_, up_, logits_;
  int64_t x_stride_, q_stride_, kv_stride_, mlp_stride_, logits_stride_;
  std::vector<AlignedArray<float>> scratch_;  // per thread
  std::vector<float> frequencies_;            // of rope, [head_dim / 2]
  AlignedArray<float> cos_, sin_;             // [max_rows][head_dim / 2], of the current chunk
};

}  // namespace walsh
