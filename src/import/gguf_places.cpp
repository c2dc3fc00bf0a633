#include "import/gguf_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

#include "io/printable.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// No published model has as many; it bounds the number of names that a file's count creates.
constexpr int64_t kMaxExperts = 4096;

constexpr GgufName kOutside[] = {{"token_embd", "model.embed_tokens"},
                                 {"output_norm", "model.norm"},
                                 {"token_embd_norm", "model.embedding_norm"},
                                 {"output", "lm_head"},
                                 {"per_layer_token_embd", "model.embed_tokens_per_layer"},
                                 {"per_layer_model_proj", "model.per_layer_model_projection"},
                                 {"per_layer_proj_norm", "model.per_layer_projection_norm"}};
// Within a layer these tensors lack ".weight" in the file or in the checkpoint.
constexpr GgufName kExact[] = {{"attn_sinks.weight", "self_attn.sinks"},
                               {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
                               {"ssm_a", "linear_attn.A_log"},
                               {"ssm_dt.bias", "linear_attn.dt_bias"}};
// These tensors become keys of the config.
constexpr std::string_view kRopeTensors[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                             "rope_factors_short.weight"};

const GgufName* find(std::span<const GgufName> names, std::string_view name) {
  const auto place = std::find_if(names.begin(), names.end(),
                                  [&](const GgufName& entry) { return entry.gguf == name; });
  return place == names.end() ? nullptr : &*place;
}

// A name such as "blk.3.ffn_up.weight" has these parts.
struct LayerName {
  int64_t layer = 0;
  std::string_view inner;  // it is the rest, such as "ffn_up.weight"
};

std::optional<LayerName> in_layer(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  LayerName result;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), result.layer);
  const auto digits = static_cast<size_t>(end - name.data());
  if (error != std::errc() || name[0] == '-' || name.substr(digits, 1) != ".") return std::nullopt;
  result.inner = name.substr(digits + 1);
  return result;
}

struct InnerNames {
  std::string first, second;
};

// Names one expert's matrix in files of early 2024 ("ffn_up.7"), from the name for all experts.
InnerNames expert_names(const GgufFamily& family, std::string_view stem, std::string_view kind) {
  const size_t dot = stem.rfind('.');
  const std::string_view number = dot == std::string_view::npos ? "" : stem.substr(dot + 1);
  const bool is_number =
      !number.empty() && number.size() < 6 &&
      std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) return {};
  const GgufName* found = gguf_layer_name(family, std::string(stem.substr(0, dot)).append("_exps"));
  if (found == nullptr || !found->second.empty()) return {};
  std::string name(found->checkpoint);
  name.replace(name.find('*'), 1, number);
  return {name.append(kind), ""};
}

// Returns the checkpoint's names, without the layer, of a layer's tensor, or none if it is unknown.
InnerNames inner_names(const GgufFamily& family, std::string_view inner) {
  for (const std::span<const GgufName> whole : {family.names, std::span<const GgufName>(kExact)})
    if (const GgufName* exact = find(whole, inner)) return {std::string(exact->checkpoint), ""};
  const size_t dot = inner.rfind('.');
  const std::string_view kind = dot == std::string_view::npos ? "" : inner.substr(dot);
  if (kind != ".weight" && kind != ".bias") return {};
  const GgufName* found = gguf_layer_name(family, inner.substr(0, dot));
  if (found == nullptr) return expert_names(family, inner.substr(0, dot), kind);
  const auto named = [&](std::string_view name) {
    return name.empty() ? std::string() : fmt::format("{}{}", name, kind);
  };
  return {named(found->checkpoint), named(found->second)};
}

struct Rows {
  std::string name;
  int64_t count = 0;
};

// Cuts a tensor along its outermost dimension, and each piece in two if there are two names.
class Cut {
 public:
  Cut(const GgufTensor& tensor, const std::string& path) : tensor_(tensor), path_(path) {
    shape_.assign(tensor.dims.rbegin(), tensor.dims.rend());
  }

  std::vector<GgufPlace> whole(const std::string& first, const std::string& second) {
    add(first, second, shape_, 0, tensor_.bytes);
    return std::move(places_);
  }

  std::vector<GgufPlace> experts(const InnerNames& names, const std::string& prefix,
                                 int64_t count) {
    if (shape_.size() < 2 || shape_[0] != count) {
      refuse(fmt::format("expected the parts of {} experts in its outermost dimension, found {}",
                         count, shape_.empty() ? 0 : shape_[0]));
    }
    const std::vector<int64_t> rest(shape_.begin() + 1, shape_.end());
    const uint64_t step = tensor_.bytes / static_cast<uint64_t>(count);
    for (int64_t i = 0; i < count; ++i) {
      const auto numbered = [&](std::string name) {
        if (const size_t star = name.find('*'); star != std::string::npos)
          name.replace(star, 1, std::to_string(i));
        return name.empty() ? name : prefix + name;
      };
      add(numbered(names.first), numbered(names.second), rest, static_cast<uint64_t>(i) * step,
          step);
    }
    return std::move(places_);
  }

  // Returns the places of matrices or vectors that are stored one below the other, each with its
  // number of rows.
  std::vector<GgufPlace> stacked(std::span<const Rows> parts) {
    int64_t all = 0;
    for (const Rows& part : parts)
      all += part.count;
    const bool is_dense = ggml_type_info(tensor_.type)->block == 1;
    if (shape_.empty() || shape_[0] != all || (shape_.size() == 1 && !is_dense)) {
      refuse(fmt::format("found {} rows, expected {} of queries, keys and values",
                         shape_.empty() ? 0 : shape_[0], all));
    }
    const uint64_t row = tensor_.bytes / static_cast<uint64_t>(all);
    uint64_t offset = 0;
    for (const Rows& part : parts) {
      shape_[0] = part.count;
      const uint64_t bytes = row * static_cast<uint64_t>(part.count);
      places_.push_back({part.name, shape_, offset, bytes});
      offset += bytes;
    }
    return std::move(places_);
  }

  [[noreturn]] void refuse(std::string reason) const {
    throw Error(ErrorCode::bad_input, path_ + ": tensor " + printable(tensor_.name),
                std::move(reason));
  }

 private:
  void add(const std::string& first, const std::string& second, std::vector<int64_t> shape,
           uint64_t offset, uint64_t bytes) {
    if (second.empty()) {
      places_.push_back({first, std::move(shape), offset, bytes});
      return;
    }
    if (shape.size() < 2 || shape[0] % 2 != 0)
      refuse("expected an even number of rows, for two matrices");
    shape[0] /= 2;
    places_.push_back({first, shape, offset, bytes / 2});
    places_.push_back({second, shape, offset + bytes / 2, bytes / 2});
  }

  const GgufTensor& tensor_;
  const std::string& path_;
  std::vector<int64_t> shape_;
  std::vector<GgufPlace> places_;
};

int64_t expert_count(const GgufMetadata& metadata) {
  const int64_t count = metadata.require(".expert_count");
  if (count < 1 || count > kMaxExperts) {
    metadata.refuse(".expert_count",
                    fmt::format("is {}, expected 1 to {} experts", count, kMaxExperts));
  }
  return count;
}

// Returns the numbers of rows of queries, keys and values, which a file may store as one tensor
// whatever the checkpoint does.
std::array<Rows, 3> attention_rows(const GgufMetadata& m, const std::string& prefix,
                                   std::string_view kind) {
  constexpr int64_t kMost = int64_t{1} << 20;
  const auto count = [&](const char* key, int64_t fallback) {
    const int64_t value = m.uniform_integer(key).value_or(fallback);
    if (value < 1 || value > kMost) m.refuse(key, fmt::format("is {}", value));
    return value;
  };
  const int64_t heads = count(".attention.head_count", 0);
  const int64_t kv_heads = count(".attention.head_count_kv", heads);
  const int64_t dim = count(".attention.key_length", m.require(".embedding_length") / heads);
  const auto rows = [&](const char* part, int64_t n) {
    return Rows{fmt::format("{}self_attn.{}_proj{}", prefix, part, kind), n * dim};
  };
  return {rows("q", heads), rows("k", kv_heads), rows("v", kv_heads)};
}

// Places the matrices by which heads compute from the latent. The file stores one per head; the
// checkpoint has them one below the other. Keys are stored transposed (gguf_order.h).
void stack_heads(GgufPlace& place) {
  std::vector<int64_t>& shape = place.shape;
  if (shape.size() != 3) return;
  if (place.name.ends_with(".v_b_proj.weight")) shape = {shape[0] * shape[1], shape[2]};
  if (place.name.ends_with(".k_b_proj.weight")) shape = {shape[0] * shape[2], shape[1]};
}

// Places the vectors of Mamba-2 mixers, which the file stores as matrices.
void flatten_vectors(GgufPlace& place) {
  std::vector<int64_t>& shape = place.shape;
  for (const std::string_view name : {".mamba.A_log", ".mamba.D", ".mamba.norm.weight"})
    if (shape.size() == 2 && place.name.ends_with(name)) shape = {shape[0] * shape[1]};
}

}  // namespace

std::vector<GgufPlace> gguf_places(const GgufMetadata& metadata, const GgufFamily& family,
                                   const GgufTensor& tensor, const std::string& path) {
  const std::string_view name = tensor.name;
  if (std::find(std::begin(kRopeTensors), std::end(kRopeTensors), name) != std::end(kRopeTensors))
    return {};
  Cut cut(tensor, path);
  for (const std::string_view kind : {".weight", ".bias"}) {
    if (!name.ends_with(kind)) continue;
    if (const GgufName* found = find(kOutside, name.substr(0, name.size() - kind.size())))
      return cut.whole(fmt::format("{}{}", found->checkpoint, kind), "");
  }
  const auto layer = in_layer(name);
  if (layer && layer->layer >= metadata.layers() &&
      layer->layer < metadata.require(".block_count")) {
    return {};
  }
  if (layer && gguf_layer_name(family, "attn_qkv") == nullptr) {
    for (const std::string_view kind : {".weight", ".bias"}) {
      if (layer->inner != std::string("attn_qkv").append(kind)) continue;
      return cut.stacked(
          attention_rows(metadata, fmt::format("model.layers.{}.", layer->layer), kind));
    }
  }
  const InnerNames names = layer ? inner_names(family, layer->inner) : InnerNames();
  if (names.first.empty())
    cut.refuse("is not known for architecture " + std::string(family.architecture));
  const std::string prefix = fmt::format("model.layers.{}.", layer->layer);
  if (names.first.find('*') != std::string::npos)
    return cut.experts(names, prefix, expert_count(metadata));
  auto places = cut.whole(prefix + names.first, names.second.empty() ? "" : prefix + names.second);
  for (GgufPlace& place : places) {
    stack_heads(place);
    flatten_vectors(place);
  }
  return places;
}

}  // namespace walsh
