#include "model/model.h"

#include <algorithm>
#include <map>

namespace walsh {
namespace {

uint64_t stored_bytes(const Linear& linear) {
  return tensor_bytes(*linear.stored, linear.rows, linear.cols);
}

}  // namespace

ActivationMode parse_activation_mode(std::string_view name) {
  if (name == "auto") return ActivationMode::automatic;
  if (name == "i8") return ActivationMode::i8;
  if (name == "i8x2") return ActivationMode::i8x2;
  if (name == "f16") return ActivationMode::f16;
  if (name == "f32") return ActivationMode::f32;
  if (name == "lut") return ActivationMode::lut;
  throw Error(ErrorCode::usage, std::string(name),
              "unknown activation type, expected auto, i8, i8x2, f16, f32 or lut");
}

uint64_t Linear::bytes() const {
  uint64_t sum = bias.size() * sizeof(float) + dense.data.size();
  if (device_weights) sum += device_weights->bytes();
  for (const auto& pass : passes)
    sum += pass->bytes();
  return sum;
}

uint64_t TokenTable::bytes() const {
  return present() ? tensor_bytes(*stored.format, stored.rows, stored.cols) : 0;
}

int64_t TokenTable::scratch() const {
  return present() ? padded_cols(*stored.format, stored.cols) : 0;
}

void TokenTable::look_up(int64_t id, float scale, float* out, float* scratch) const {
  const int64_t cols = stored.cols;
  if (stored.format->dense) {
    decode_rows(stored, id, id + 1, out);
  } else {
    std::fill_n(out, cols, 0.0f);
    for (int pass = 0; pass < stored.format->passes; ++pass) {
      decode_pass_row(stored, pass, id, scratch);
      const Rotator* rotator = rotators[static_cast<size_t>(pass)];
      if (rotator != nullptr) rotator->invert(scratch);
      for (int64_t c = 0; c < cols; ++c)
        out[c] += scratch[c];
    }
  }
  for (int64_t c = 0; scale != 1 && c < cols; ++c)
    out[c] *= scale;
}

uint64_t Model::model_bytes() const {
  uint64_t sum = 0;
  for (const Model& part : all_parts()) {
    sum += part.other_bytes_;
    sum += part.embedding.bytes() + part.layer_embedding.bytes();
    for (const Layer& layer : part.layers)
      for (const Linear& linear : layer.matrices)
        sum += stored_bytes(linear);
    if (part.has_head() && !config.tied_head) sum += stored_bytes(part.head);
  }
  return sum;
}

uint64_t Model::bytes_per_token() const {
  uint64_t sum = 0;
  for (const Model& part : all_parts()) {
    for (const TokenTable* table : {&part.embedding, &part.layer_embedding})
      if (table->present()) sum += tensor_bytes(*table->stored.format, 1, table->stored.cols);
    if (part.has_head()) sum += part.head.bytes();
    for (size_t i = 0; i < part.layers.size(); ++i) {
      const LayerDesc& desc = part.config.layers[i];
      for (size_t m = 0; m < desc.matrices.size(); ++m)
        if (desc.of_one_token(desc.matrices[m])) sum += part.layers[i].matrices[m].bytes();
    }
  }
  return sum;
}

double Model::bits_per_weight() const {
  double bits = 0, weights = 0;
  for (const Model& part : all_parts()) {
    for (size_t i = 0; i < part.layers.size(); ++i) {
      for (size_t m = 0; m < part.layers[i].matrices.size(); ++m) {
        if (part.config.layers[i].matrices[m].plain) continue;
        const Linear& linear = part.layers[i].matrices[m];
        bits += 8 * static_cast<double>(stored_bytes(linear));
        weights += static_cast<double>(linear.rows) * static_cast<double>(linear.cols);
      }
    }
  }
  return bits / weights;
}

std::string_view Model::type_name() const {
  std::map<std::string_view, int64_t> weights;
  for (const Model& part : all_parts())
    for (const Layer& layer : part.layers)
      for (const Linear& linear : layer.matrices)
        weights[linear.stored->name] += linear.rows * linear.cols;
  const auto most = std::max_element(weights.begin(), weights.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  return most->first;
}

}  // namespace walsh
