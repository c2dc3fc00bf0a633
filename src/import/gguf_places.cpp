#include "import/gguf_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "io/printable.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Above every published model; a count that a file states decides how many names there are.
constexpr int64_t kMaxExperts = 4096;

constexpr GgufName kOutside[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
// Whole names within a layer, of tensors without ".weight" on one of the two sides.
constexpr GgufName kExact[] = {{"attn_sinks.weight", "self_attn.sinks"},
                               {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
                               {"ssm_a", "linear_attn.A_log"},
                               {"ssm_dt.bias", "linear_attn.dt_bias"}};
// Tensors that stand for keys of the config.
constexpr std::string_view kRopeTensors[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                             "rope_factors_short.weight"};

const GgufName* find(std::span<const GgufName> names, std::string_view name) {
  const auto place = std::find_if(names.begin(), names.end(),
                                  [&](const GgufName& entry) { return entry.gguf == name; });
  return place == names.end() ? nullptr : &*place;
}

// "blk.3.ffn_up.weight" in its parts.
struct LayerName {
  int64_t layer = 0;
  std::string_view inner;  // "ffn_up.weight"
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

// The names of a layer's tensor in the checkpoint behind the layer; empty if it is not known.
struct InnerNames {
  std::string first, second;
};

InnerNames inner_names(const GgufFamily& family, std::string_view inner) {
  if (const GgufName* exact = find(kExact, inner)) return {std::string(exact->checkpoint), ""};
  const size_t dot = inner.rfind('.');
  const std::string_view kind = dot == std::string_view::npos ? "" : inner.substr(dot);
  if (kind != ".weight" && kind != ".bias") return {};
  const GgufName* found = gguf_layer_name(family, inner.substr(0, dot));
  if (found == nullptr) return {};
  const auto named = [&](std::string_view name) {
    return name.empty() ? std::string() : fmt::format("{}{}", name, kind);
  };
  return {named(found->checkpoint), named(found->second)};
}

// Cuts a tensor along its outermost dimension, and every piece in two if there are two names.
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
    if (shape.empty() || shape[0] % 2 != 0)
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
  const InnerNames names = layer ? inner_names(family, layer->inner) : InnerNames();
  if (names.first.empty())
    cut.refuse("is not known for architecture " + std::string(family.architecture));
  const std::string prefix = fmt::format("model.layers.{}.", layer->layer);
  if (names.first.find('*') != std::string::npos)
    return cut.experts(names, prefix, expert_count(metadata));
  return cut.whole(prefix + names.first, names.second.empty() ? "" : prefix + names.second);
}

}  // namespace walsh
