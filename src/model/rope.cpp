#include "model/rope.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

namespace walsh {
namespace {

constexpr double kMaxFactor = 1e9;
constexpr double kMaxTheta = 1e15;

// One set of parameters. Keys that a kind does not use are refused like unknown keys, except those
// that transformers writes for every kind.
RopeConfig read_parameters(const Json& object, const std::string& where, double theta) {
  ConfigReader reader(object, where);
  RopeConfig rope;
  rope.theta = reader.number_or("rope_theta", theta, 1, kMaxTheta);
  reader.only("partial_rotary_factor", 1.0);
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
  } else if (kind != "default") {
    reader.refuse(key, "rope type not supported, expected default, linear or llama3");
  }
  reader.finish();
  return rope;
}

// One set per kind of layer is supported when all sets are the same.
RopeConfig read_new_style(const Json& object, const std::string& where, double theta) {
  if (!object.is_object() || object.empty() || !object.begin()->is_object()) {
    return read_parameters(object, where, theta);
  }
  const RopeConfig first = read_parameters(*object.begin(), where, theta);
  for (const auto& item : object.items()) {
    if (!(read_parameters(item.value(), where, theta) == first)) {
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
  const double theta = reader.number_or("rope_theta", RopeConfig{}.theta, 1, kMaxTheta);
  const bool has_theta = reader.value("rope_theta") != nullptr;
  const Json* scaling = reader.value("rope_scaling");
  const Json* parameters = reader.value("rope_parameters");
  RopeConfig old_style;
  old_style.theta = theta;
  if (scaling != nullptr) {
    old_style = read_parameters(*scaling, reader.where() + ": rope_scaling", theta);
    // Versions of transformers differ in which of the two they take.
    if (has_theta && old_style.theta != theta) {
      reader.refuse("rope_scaling", "its rope_theta contradicts the one beside it");
    }
  }
  if (parameters == nullptr) return old_style;
  const RopeConfig rope = read_new_style(*parameters, reader.where() + ": rope_parameters", theta);
  if ((has_theta && rope.theta != theta) || (scaling != nullptr && !(old_style == rope))) {
    reader.refuse("rope_parameters", "contradicts rope_theta or rope_scaling");
  }
  return rope;
}

std::vector<float> rope_frequencies(const RopeConfig& rope, int64_t head_dim) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const double exponent = 2 * static_cast<double>(i) / static_cast<double>(head_dim);
    double frequency = std::pow(rope.theta, -exponent);
    if (rope.kind == RopeKind::linear) frequency /= rope.factor;
    if (rope.kind == RopeKind::llama3) frequency = scale_llama3(rope, frequency);
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

}  // namespace walsh
