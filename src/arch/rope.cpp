#include "arch/rope.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "arch/config_reader.h"

namespace walsh {
namespace {

constexpr double kMaxFactor = 1e9;
constexpr double kMaxTheta = 1e15;
constexpr size_t kMaxFactors = 1024;

// What the config says outside of the parameters of a set, for those that the set leaves out.
struct RopeDefaults {
  double theta = 10000, share = 1;
  int64_t original_max_positions = 0, max_positions = 0;
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

// Phi-3's way to longer contexts (LongRoPE, Ding et al. 2024).
void read_longrope(ConfigReader& reader, const RopeDefaults& defaults, RopeConfig& rope) {
  rope.kind = RopeKind::longrope;
  rope.short_factor = read_factors(reader, "short_factor");
  rope.long_factor = read_factors(reader, "long_factor");
  if (rope.short_factor.size() != rope.long_factor.size())
    reader.refuse("long_factor", "expected as many factors as short_factor has");
  rope.original_max_positions = reader.integer_or(
      "original_max_position_embeddings", defaults.original_max_positions, 2, int64_t{1} << 31);
  if (rope.original_max_positions == 0)
    reader.refuse("original_max_position_embeddings", "expected a number of positions");
  const double longer = static_cast<double>(defaults.max_positions) /
                        static_cast<double>(rope.original_max_positions);
  const double factor = reader.number_or("factor", longer, 1e-6, kMaxFactor);
  const double original = static_cast<double>(rope.original_max_positions);
  const double own = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  rope.attention_factor = reader.number_or("attention_factor", own, 1e-6, kMaxFactor);
}

// One set of parameters. Keys that a kind does not use are refused like unknown keys, except those
// that transformers writes for every kind.
RopeConfig read_parameters(const Json& object, const std::string& where,
                           const RopeDefaults& defaults) {
  ConfigReader reader(object, where);
  RopeConfig rope;
  rope.theta = reader.number_or("rope_theta", defaults.theta, 1, kMaxTheta);
  rope.share = reader.number_or("partial_rotary_factor", defaults.share, 1e-3, 1);
  const auto new_name = reader.text("rope_type");
  const auto old_name = reader.text("type");
  if (new_name && old_name && *new_name != *old_name) {
    reader.refuse("type", fmt::format("expected the same as 'rope_type', '{}'", *new_name));
  }
  const char* key = new_name ? "rope_type" : "type";
  const std::string kind = new_name ? *new_name : old_name.value_or("default");
  if (kind == "linear") {
    rope.kind = RopeKind::linear;
    rope.factor = reader.number("factor", 1, kMaxFactor);
  } else if (kind == "llama3") {
    rope.kind = RopeKind::llama3;
    rope.factor = reader.number("factor", 1, kMaxFactor);
    rope.low_freq_factor = reader.number("low_freq_factor", 1e-6, kMaxFactor);
    rope.high_freq_factor = reader.number("high_freq_factor", 1e-6, kMaxFactor);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      reader.refuse("high_freq_factor", "expected more than low_freq_factor");
    }
    rope.original_max_positions =
        reader.integer("original_max_position_embeddings", 1, int64_t{1} << 31);
  } else if (kind == "longrope" || kind == "su") {  // "su" is what early Phi-3 files call it
    read_longrope(reader, defaults, rope);
  } else if (kind != "default") {
    reader.refuse(key, "rope type not supported, expected default, linear, llama3 or longrope");
  }
  reader.finish();
  return rope;
}

// One set per kind of layer is supported when all sets are the same.
RopeConfig read_new_style(const Json& object, const std::string& where,
                          const RopeDefaults& defaults) {
  if (!object.is_object() || object.empty() || !object.begin()->is_object()) {
    return read_parameters(object, where, defaults);
  }
  const RopeConfig first = read_parameters(*object.begin(), where, defaults);
  for (const auto& item : object.items()) {
    if (!(read_parameters(item.value(), where, defaults) == first)) {
      throw Error(ErrorCode::bad_input, where,
                  "different parameters per kind of layer are not supported");
    }
  }
  return first;
}

// Llama 3.1: long wavelengths are divided by `factor`, short ones kept, those between blended.
double scale_llama3(const RopeConfig& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = static_cast<double>(rope.original_max_positions);
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double blend = (original / wavelength - rope.low_freq_factor) /
                       (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - blend) * frequency / rope.factor + blend * frequency;
}

}  // namespace

RopeConfig read_rope(ConfigReader& reader) {
  RopeDefaults defaults;
  defaults.theta = reader.number_or("rope_theta", RopeConfig{}.theta, 1, kMaxTheta);
  defaults.share = reader.number_or("partial_rotary_factor", 1, 1e-3, 1);
  defaults.original_max_positions =
      reader.integer_or("original_max_position_embeddings", 0, 2, int64_t{1} << 31);
  defaults.max_positions = reader.integer("max_position_embeddings", 1, int64_t{1} << 31);
  const bool has_theta = reader.value("rope_theta") != nullptr;
  const Json* scaling = reader.value("rope_scaling");
  const Json* parameters = reader.value("rope_parameters");
  RopeConfig old_style;
  old_style.theta = defaults.theta;
  old_style.share = defaults.share;
  if (scaling != nullptr) {
    old_style = read_parameters(*scaling, reader.where() + ": rope_scaling", defaults);
    // Versions of transformers differ in which of the two they take.
    if (has_theta && old_style.theta != defaults.theta)
      reader.refuse("rope_scaling", "its rope_theta contradicts the one beside it");
  }
  if (parameters == nullptr) return old_style;
  const RopeConfig rope =
      read_new_style(*parameters, reader.where() + ": rope_parameters", defaults);
  if ((has_theta && rope.theta != defaults.theta) || (scaling != nullptr && !(old_style == rope))) {
    reader.refuse("rope_parameters", "contradicts rope_theta or rope_scaling");
  }
  return rope;
}

RopeTable rope_table(const RopeConfig& rope, int64_t head_dim, int64_t positions) {
  RopeTable table;
  const auto rotated = static_cast<int64_t>(static_cast<double>(head_dim) * rope.share);
  const std::vector<float>& factors =
      positions > rope.original_max_positions ? rope.long_factor : rope.short_factor;
  for (int64_t i = 0; i < rotated / 2; ++i) {
    const double exponent = 2 * static_cast<double>(i) / static_cast<double>(rotated);
    double frequency = std::pow(rope.theta, -exponent);
    if (rope.kind == RopeKind::linear) frequency /= rope.factor;
    if (rope.kind == RopeKind::llama3) frequency = scale_llama3(rope, frequency);
    if (rope.kind == RopeKind::longrope)
      frequency /= static_cast<double>(factors[static_cast<size_t>(i)]);
    table.frequencies.push_back(static_cast<float>(frequency));
  }
  table.magnitude = static_cast<float>(rope.attention_factor);
  return table;
}

}  // namespace walsh
