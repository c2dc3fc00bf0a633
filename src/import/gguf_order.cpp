#include "import/gguf_order.h"

#include <string_view>

#include "io/json.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr std::string_view kDeltaNet = ".linear_attn.";
constexpr std::string_view kKeysOfLatent = ".self_attn.k_b_proj.weight";
// Only this family's values keep their order, because keys are stored with the values that read
// them.
constexpr std::string_view kGrouped = "qwen3_next";

// Returns a number of the config, small enough that products of three do not overflow, or 0 if it
// is no count.
int64_t number(const Json& config, const char* key) {
  constexpr int64_t kMost = int64_t{1} << 20;
  const auto found = config.find(key);
  if (found == config.end() || !found->is_number_integer()) return 0;
  const auto value = found->get<int64_t>();
  return value > 0 && value <= kMost ? value : 0;
}

[[noreturn]] void refuse(const TensorInfo& info, const char* what, int64_t found,
                         const std::string& expected) {
  throw Error(ErrorCode::bad_input, info.where(),
              "found " + std::to_string(found) + " " + what + ", expected " + expected);
}

}  // namespace

int64_t GgufOrder::stored(int64_t index) const {
  if (key_heads == 0 || index < first) return index;
  const int64_t at = index - first, head = at / size;
  const int64_t key = head / group, in_group = head % group;
  return first + (in_group * key_heads + key) * size + at % size;
}

GgufOrder gguf_order(const Checkpoint& checkpoint, const TensorInfo& info) {
  GgufOrder order;
  if (info.name.ends_with(kKeysOfLatent)) {
    const Json config = parse_json(checkpoint.config_json(), checkpoint.config_place());
    order.turned = number(config, "num_attention_heads");
    if (order.turned == 0 || info.shape.front() % order.turned != 0) {
      refuse(info, "rows", info.shape.front(),
             "a multiple of " + std::to_string(order.turned) + " heads");
    }
    return order;
  }
  order.rates = info.name.ends_with(".A_log");
  const size_t place = info.name.find(kDeltaNet);
  if (place == std::string::npos) return order;
  const std::string_view part = std::string_view(info.name).substr(place + kDeltaNet.size());
  const Json config = parse_json(checkpoint.config_json(), checkpoint.config_place());
  const auto type = config.find("model_type");
  if (type != config.end() && type->is_string() &&
      type->get_ref<const std::string&>() == kGrouped) {
    return order;
  }
  const int64_t keys = number(config, "linear_num_key_heads");
  const int64_t values = number(config, "linear_num_value_heads");
  const int64_t dim = number(config, "linear_value_head_dim");
  const int64_t key_rows = 2 * keys * number(config, "linear_key_head_dim");
  if (keys == 0 || values % keys != 0 || values == keys) return order;
  int64_t extent = info.shape.front();
  if (part == "in_proj_qkv.weight" || part == "conv1d.weight") {
    order.first = key_rows;
    order.size = dim;
  } else if (part == "in_proj_z.weight") {
    order.size = dim;
  } else if (part == "out_proj.weight") {
    order.size = dim;
    order.columns = true;
    extent = info.shape.back();
  } else if (part == "in_proj_a.weight" || part == "in_proj_b.weight" || part == "A_log" ||
             part == "dt_bias") {
    order.size = 1;
  } else {
    return order;
  }
  order.key_heads = keys;
  order.group = values / keys;
  if (extent != order.first + values * order.size) {
    refuse(info, order.columns ? "columns" : "rows", extent,
           std::to_string(order.first + values * order.size));
  }
  return order;
}

}  // namespace walsh
