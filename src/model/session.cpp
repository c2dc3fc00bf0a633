#include "model/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "model/rope.h"

namespace walsh {
namespace {

// Tokens evaluated together: enough to pay for decoding the weights, few enough that their
// activations stay in the second-level cache.
constexpr int64_t kMaxRows = 256;
// Floats of logits computed together: a row of any vocabulary, many rows of a small one.
constexpr int64_t kLogitFloats = int64_t{1} << 22;
constexpr int64_t kDefaultPositions = 4096;
constexpr int64_t kRowAlignment = 16;  // floats: 64 bytes

int64_t choose_positions(const ModelConfig& config, int64_t wanted) {
  if (wanted == 0) return std::min(config.max_positions, kDefaultPositions);
  if (wanted < 0 || wanted > config.max_positions) {
    throw Error(
        ErrorCode::usage, "context",
        fmt::format("{} positions asked for, the model has 1 to {}", wanted, config.max_positions));
  }
  return wanted;
}

size_t rows_of(int64_t rows, int64_t stride) {
  return static_cast<size_t>(rows * stride);
}

uint64_t workspace_bytes(const std::vector<BufferShape>& shapes, int64_t rows) {
  uint64_t sum = 0;
  for (const BufferShape& shape : shapes)
    sum += rows_of(rows, shape.cols) * (shape.planes > 0 ? static_cast<size_t>(shape.planes) : 4);
  return sum;
}

void check_limit(uint64_t bytes, uint64_t limit) {
  if (bytes <= limit) return;
  throw Error(ErrorCode::limit, "workspaces of the forward pass",
              fmt::format("{} MiB needed, the limit leaves {} MiB", bytes >> 20, limit >> 20));
}

}  // namespace

Session::Session(const Model& model, const SessionOptions& options)
    : model_(model),
      ops_(ops()),
      cache_(model.config, choose_positions(model.config, options.max_positions),
             options.max_bytes),
      max_rows_(std::min(kMaxRows, cache_.capacity())),
      logit_rows_(std::clamp(kLogitFloats / model.config.vocab, int64_t{1}, max_rows_)),
      x_stride_(round_up(model.config.hidden, kRowAlignment)),
      q_stride_(round_up(model.config.query_width(), kRowAlignment)),
      kv_stride_(round_up(model.config.kv_width(), kRowAlignment)),
      mlp_stride_(round_up(model.config.intermediate, kRowAlignment)),
      logits_stride_(round_up(model.config.vocab, kRowAlignment)),
      frequencies_(rope_frequencies(model.config.rope, model.config.head_dim)) {
  const int64_t floats_per_row = 2 * (x_stride_ + q_stride_ + kv_stride_ + mlp_stride_);
  check_limit(workspace_bytes(model.buffers, max_rows_) +
                  sizeof(float) *
                      (rows_of(max_rows_, floats_per_row) + rows_of(logit_rows_, logits_stride_)),
              options.max_bytes - cache_.bytes());
  for (AlignedArray<float>* rows : {&x_, &branch_})
    *rows = AlignedArray<float>(rows_of(max_rows_, x_stride_));
  for (AlignedArray<float>* rows : {&q_, &attended_})
    *rows = AlignedArray<float>(rows_of(max_rows_, q_stride_));
  for (AlignedArray<float>* rows : {&k_, &v_})
    *rows = AlignedArray<float>(rows_of(max_rows_, kv_stride_));
  for (AlignedArray<float>* rows : {&gate_, &up_})
    *rows = AlignedArray<float>(rows_of(max_rows_, mlp_stride_));
  logits_ = AlignedArray<float>(rows_of(logit_rows_, logits_stride_));
  for (AlignedArray<float>* rows : {&cos_, &sin_})
    *rows = AlignedArray<float>(rows_of(max_rows_, model.config.head_dim / 2));

  int64_t scratch = std::max(
      model.embedding_scratch(),
      attention_scratch(max_rows_, cache_.capacity(), static_cast<int>(model.config.head_dim)));
  for (const BufferShape& shape : model.buffers) {
    Workspace workspace;
    if (shape.planes > 0) {
      workspace.quantized = ActivationsI8(max_rows_, shape.cols, shape.group, shape.planes);
      scratch = std::max(scratch, shape.cols);
    } else {
      workspace.stride = round_up(shape.cols, kRowAlignment);
      workspace.rows = AlignedArray<float>(rows_of(max_rows_, workspace.stride));
    }
    workspaces_.push_back(std::move(workspace));
  }
  for (int t = 0; t < model.pool().size(); ++t)
    scratch_.emplace_back(static_cast<size_t>(scratch));
}

void Session::forward(std::span<const int32_t> tokens, LogitSink sink, int64_t first_logit) {
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (count > capacity() - position_) {
    throw Error(ErrorCode::usage, "context",
                fmt::format("{} more tokens do not fit: {} of {} positions are used", count,
                            position_, capacity()));
  }
  for (int32_t token : tokens) {
    if (token < 0 || token >= model_.config.vocab) {
      throw Error(ErrorCode::usage, "token",
                  fmt::format("id {} is outside the vocabulary of {}", token, model_.config.vocab));
    }
  }
  for (int64_t begin = 0; begin < count; begin += max_rows_) {
    const int64_t m = std::min(max_rows_, count - begin);
    chunk(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(m)), sink, begin,
          first_logit);
  }
}

void Session::truncate(int64_t positions) {
  if (positions < 0 || positions > position_) {
    throw Error(ErrorCode::usage, "context",
                fmt::format("cannot keep {} of {} tokens", positions, position_));
  }
  position_ = positions;
}

void Session::chunk(std::span<const int32_t> tokens, LogitSink sink, int64_t first_index,
                    int64_t first_logit) {
  const int64_t m = static_cast<int64_t>(tokens.size());
  // The last layer need not be finished for rows whose logits nobody wants.
  const int64_t first_row = std::clamp(first_logit - first_index, int64_t{0}, m);
  embed(tokens);
  const int64_t layers = model_.config.layers;
  for (int64_t i = 0; i < layers; ++i)
    run_layer(i, m, i == layers - 1 ? first_row : 0);
  logits(m, sink, first_index, first_row);
  position_ += m;
}

void Session::logits(int64_t m, LogitSink sink, int64_t first_index, int64_t first_row) {
  for (int64_t row = first_row; row < m; row += logit_rows_) {
    const int64_t n = std::min(logit_rows_, m - row);
    prepare(model_.head_input, x_.data() + row * x_stride_, x_stride_, n);
    multiply({{&model_.head, &model_.head_input, logits_.data(), logits_stride_}}, n);
    for (int64_t i = 0; i < n; ++i) {
      sink(first_index + row + i,
           {logits_.data() + i * logits_stride_, static_cast<size_t>(model_.config.vocab)});
    }
  }
}

}  // namespace walsh
