#include "arch/rope.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "arch/config_reader.h"

namespace walsh {
namespace {

constexpr double kMaxFactor = 1e9;
constexpr double kMaxTheta = 1e15;
constexpr size_t kMaxFactors = 1024;
constexpr int64_t kMaxPositions = int64_t{1} << 31;
// Each of these kinds of layers may have its own parameters. The results have this order.
constexpr auto kKinds = std::to_array<const char*>({"full_attention", "sliding_attention"});

// Holds what the config states outside of the rope parameters, for parameters that do not state it.
struct Outside {
  double theta = 10000, share = 1;
  int64_t original_max_positions = 0, max_positions = 0;
  bool query_growth = false;
  bool proportional = false;  // If true, this kind is known.
  bool alpha = false;
  std::array<int64_t, 3> sections = {};
};

std::vector<float> read_factors(ConfigReader& reader, const char* key) {
  const Json* list = reader.value(key);
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxFactors)
    reader.refuse(key, "expected a list of factors");
  std::vector<float> factors;
  for (const Json& factor : *list) {
    if (!factor.is_number() || !(factor.get<double>() >= 1e-3) || factor.get<double>() > kMaxFactor)
      reader.refuse(key, "expected factors of at least 0.001");
    factors.push_back(factor.get<float>());
  }
  return factors;
}

// Returns how many positions the training had. As in transformers, a value outside the parameters
// counts, too.
int64_t original_positions(ConfigReader& reader, const Outside& outside, int64_t absent,
                           int64_t least) {
  constexpr const char* kKey = "original_max_position_embeddings";
  const int64_t inside = reader.optional_integer(kKey, absent, least, kMaxPositions);
  const int64_t found =
      outside.original_max_positions != 0 ? outside.original_max_positions : inside;
  if (found == 0) reader.refuse(kKey, "expected a number of positions");
  return found;
}

// Reads Phi-3's extension to longer contexts (LongRoPE, Ding et al. 2024).
void read_longrope(ConfigReader& reader, const Outside& outside, RopeConfig& rope) {
  rope.kind = RopeKind::longrope;
  rope.short_factor = read_factors(reader, "short_factor");
  rope.long_factor = read_factors(reader, "long_factor");
  if (rope.short_factor.size() != rope.long_factor.size())
    reader.refuse("long_factor", "expected as many factors as short_factor has");
  rope.original_max_positions = original_positions(reader, outside, 0, 2);
  const double longer =
      static_cast<double>(outside.max_positions) / static_cast<double>(rope.original_max_positions);
  const double factor = reader.optional_number("factor", longer, 1e-6, kMaxFactor);
  const double original = static_cast<double>(rope.original_max_positions);
  const double own = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  rope.attention_factor = reader.optional_number("attention_factor", own, 1e-6, kMaxFactor);
}

// Returns by how much YaRN scales attention logits of a context `factor` times as long.
double yarn_magnitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

void read_yarn(ConfigReader& reader, const Outside& outside, RopeConfig& rope) {
  rope.kind = RopeKind::yarn;
  if (rope.theta <= 1) reader.refuse("rope_theta", "expected more than 1");
  rope.original_max_positions = original_positions(reader, outside, outside.max_positions, 1);
  const double longer =
      static_cast<double>(outside.max_positions) / static_cast<double>(rope.original_max_positions);
  rope.factor = reader.optional_number("factor", longer, 1e-6, kMaxFactor);
  // Zero stands for the default, as in transformers.
  const auto positive = [&](const char* key, double absent) {
    const double value = reader.optional_number(key, 0, 0, kMaxFactor);
    return value > 0 ? value : absent;
  };
  rope.beta_fast = positive("beta_fast", rope.beta_fast);
  rope.beta_slow = positive("beta_slow", rope.beta_slow);
  rope.truncate = reader.boolean_or("truncate", true);
  const double scale = reader.optional_number("mscale", 0, 0, kMaxFactor);
  const double all = reader.optional_number("mscale_all_dim", 0, 0, kMaxFactor);
  const double own = scale > 0 && all > 0
                         ? yarn_magnitude(rope.factor, scale) / yarn_magnitude(rope.factor, all)
                         : yarn_magnitude(rope.factor, 1);
  rope.attention_factor = reader.optional_number("attention_factor", own, 1e-6, kMaxFactor);
  const double magnitude = yarn_magnitude(rope.factor, all);
  rope.logit_factor = magnitude * magnitude;
}

void read_llama3(ConfigReader& reader, const Outside& outside, RopeConfig& rope) {
  rope.kind = RopeKind::llama3;
  rope.factor = reader.number("factor", 1, kMaxFactor);
  rope.low_freq_factor = reader.number("low_freq_factor", 1e-6, kMaxFactor);
  rope.high_freq_factor = reader.number("high_freq_factor", 1e-6, kMaxFactor);
  if (rope.high_freq_factor < rope.low_freq_factor)
    reader.refuse("high_freq_factor", "expected at least low_freq_factor");
  rope.original_max_positions = original_positions(reader, outside, 0, 1);
}

// Reads the sections of multimodal models, which have several axes. A text has the same position on
// all of them, so the sections have no effect on families whose axes are not supported. Those of
// the others alternate, whatever `mrope_interleaved` says.
void read_sections(ConfigReader& reader, const Outside& outside, RopeConfig& rope) {
  constexpr const char* kKey = "mrope_section";
  const Json* sections = reader.value(kKey);
  reader.boolean_or("mrope_interleaved", false);
  rope.sections = outside.sections;
  if (sections == nullptr) return;
  if (!sections->is_array()) reader.refuse(kKey, "expected a list of numbers");
  for (const Json& section : *sections)
    if (!section.is_number_unsigned() || section.get<uint64_t>() > kMaxFactors)
      reader.refuse(kKey, "expected a list of numbers");
  if (rope.sections == RopeConfig().sections) return;
  if (sections->size() != rope.sections.size()) reader.refuse(kKey, "expected three numbers");
  rope.sections = sections->get<std::array<int64_t, 3>>();
}

// Reads a fixed stretch of the base. Files call it dynamic; the other keys of that kind are not
// used.
void read_alpha(ConfigReader& reader, RopeConfig& rope) {
  rope.alpha = reader.number("alpha", 1e-6, kMaxFactor);
  for (const char* key : {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"})
    reader.value(key);
}

void read_kind(ConfigReader& reader, const char* key, const std::string& kind,
               const Outside& outside, RopeConfig& rope) {
  const bool plain = kind == "default" || kind == "mrope";
  if (plain || outside.sections != RopeConfig().sections) read_sections(reader, outside, rope);
  if (plain) return;
  if (kind == "linear") {
    rope.kind = RopeKind::linear;
    rope.factor = reader.number("factor", 1, kMaxFactor);
  } else if (kind == "dynamic" && outside.alpha &&
             reader.optional_number("alpha", 0, 0, kMaxFactor) != 0) {
    read_alpha(reader, rope);
  } else if (kind == "dynamic") {
    rope.kind = RopeKind::dynamic;
    rope.factor = reader.number("factor", 1, kMaxFactor);
    rope.original_max_positions = outside.max_positions;
  } else if (kind == "llama3") {
    read_llama3(reader, outside, rope);
  } else if (kind == "yarn") {
    read_yarn(reader, outside, rope);
  } else if (kind == "proportional" && outside.proportional) {
    rope.kind = RopeKind::proportional;
    rope.factor = reader.optional_number("factor", 1, 1e-6, kMaxFactor);
  } else if (kind == "longrope" || kind == "su") {  // Early Phi-3 files say "su".
    read_longrope(reader, outside, rope);
  } else {
    reader.refuse(key,
                  "rope type not supported, expected default, linear, dynamic, llama3, yarn, "
                  "longrope or mrope");
  }
}

void read_query_growth(ConfigReader& reader, RopeConfig& rope) {
  rope.query_beta = reader.optional_number("llama_4_scaling_beta", 0, 0, kMaxFactor);
  reader.value("max_position_embeddings");  // It is a copy of the value outside.
  if (rope.original_max_positions == 0) {
    rope.original_max_positions =
        reader.optional_integer("original_max_position_embeddings", 0, 1, kMaxPositions);
  }
  if (rope.query_beta != 0 && rope.original_max_positions == 0)
    reader.refuse("original_max_position_embeddings", "expected a number of positions");
}

// Reads one set of parameters. Refuses keys that its kind does not use like unknown keys, except
// those that transformers writes for every kind.
RopeConfig read_parameters(const Json& object, const std::string& where, const Outside& outside) {
  ConfigReader reader(object, where);
  RopeConfig rope;
  rope.theta = reader.number_or("rope_theta", outside.theta, 1, kMaxTheta);
  rope.share = reader.number_or("partial_rotary_factor", outside.share, 1e-3, 1);
  const auto new_name = reader.text("rope_type");
  const auto old_name = reader.text("type");
  if (new_name && old_name && *new_name != *old_name) {
    reader.refuse("type", fmt::format("expected the same as 'rope_type', '{}'", *new_name));
  }
  const std::string kind = new_name ? *new_name : old_name.value_or("default");
  read_kind(reader, new_name ? "rope_type" : "type", kind, outside, rope);
  if (outside.query_growth) read_query_growth(reader, rope);
  reader.finish();
  return rope;
}

bool is_nested(const Json& object) {
  return object.is_object() && !object.empty() && object.begin()->is_object();
}

// Reads one set of parameters per kind of layer. For a family without such kinds, all sets must be
// equal.
std::vector<RopeConfig> read_nested(const Json& object, const std::string& where,
                                    std::array<Outside, 2> outside, bool per_kind) {
  std::vector<RopeConfig> sets;
  if (!per_kind) {
    for (const auto& item : object.items()) {
      sets.push_back(read_parameters(item.value(), where, outside[0]));
      if (!(sets.back() == sets.front())) {
        throw Error(ErrorCode::bad_input, where,
                    "different parameters per kind of layer are not supported");
      }
    }
    return {sets.front()};
  }
  ConfigReader reader(object, where);
  for (size_t i = 0; i < kKinds.size(); ++i) {
    const Json* set = reader.value(kKinds[i]);
    sets.push_back(read_parameters(set != nullptr ? *set : Json::object(), where + ": " + kKinds[i],
                                   outside[i]));
  }
  reader.finish();
  return sets;
}

}  // namespace

std::vector<RopeConfig> read_ropes(ConfigReader& reader, const RopeDefaults& defaults) {
  // The first is for layers with full attention, the second for layers with a window.
  std::array<Outside, 2> outside;
  Outside& whole = outside[0];
  whole.theta = reader.number_or("rope_theta", defaults.theta, 1, kMaxTheta);
  // For transformers null means whole heads, whatever the family's default is.
  const double share = reader.is_null("partial_rotary_factor") ? 1 : defaults.share;
  whole.share = reader.optional_number("partial_rotary_factor", share, 1e-3, 1);
  whole.original_max_positions =
      reader.optional_integer("original_max_position_embeddings", 0, 2, kMaxPositions);
  whole.max_positions = reader.integer("max_position_embeddings", 1, kMaxPositions);
  whole.query_growth = defaults.query_growth;
  whole.proportional = defaults.proportional;
  whole.alpha = defaults.alpha;
  whole.sections = defaults.sections;
  const bool has_theta = reader.value("rope_theta") != nullptr;
  outside[1] = whole;
  if (defaults.local_theta != 0)
    outside[1].theta = reader.number_or("rope_local_base_freq", defaults.local_theta, 1, kMaxTheta);
  const Json* scaling = reader.value("rope_scaling");
  const Json* parameters = reader.value("rope_parameters");
  std::vector<RopeConfig> old_style(defaults.per_kind ? 2 : 1);
  for (size_t i = 0; i < old_style.size(); ++i) {
    old_style[i].theta = outside[i].theta;
    old_style[i].share = outside[i].share;
    old_style[i].sections = outside[i].sections;
  }
  if (scaling != nullptr) {
    old_style[0] = read_parameters(*scaling, reader.where() + ": rope_scaling", whole);
    // If both state it, it depends on the version of transformers which one is used.
    if (has_theta && old_style[0].theta != whole.theta)
      reader.refuse("rope_scaling", "its rope_theta contradicts the one beside it");
  }
  if (parameters == nullptr && scaling == nullptr && !defaults.parameters.empty())
    return {read_parameters(Json::parse(defaults.parameters), reader.where(), whole)};
  if (parameters == nullptr) return old_style;
  const std::string where = reader.where() + ": rope_parameters";
  std::vector<RopeConfig> ropes;
  if (is_nested(*parameters)) {
    ropes = read_nested(*parameters, where, outside, defaults.per_kind);
  } else if (defaults.per_kind) {
    reader.refuse("rope_parameters", "expected one set per kind of layer");
  } else {
    ropes = {read_parameters(*parameters, where, whole)};
  }
  if ((has_theta && ropes[0].theta != whole.theta) || (scaling != nullptr && old_style != ropes))
    reader.refuse("rope_parameters", "contradicts rope_theta or rope_scaling");
  return ropes;
}

}  // namespace walsh
