#include "allocate/sensitivity_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "io/json.h"
#include "io/mapped_file.h"

namespace walsh {
namespace {

constexpr int kVersion = 1;
constexpr double kLeastError = 1e-9;
constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

DamageCurve parse_curve(const Json& json, const std::string& where) {
  const Json& errors = get_array(json, "nmse", where);
  const Json& damage = get_array(json, "damage", where);
  DamageCurve curve;
  curve.points = static_cast<int>(errors.size());
  bool valid = errors.size() == damage.size() && (curve.points == 1 || curve.points == 2);
  for (size_t i = 0; valid && i < errors.size(); ++i) {
    valid = errors[i].is_number() && damage[i].is_number();
    if (!valid) break;
    curve.nmse[i] = errors[i].get<double>();
    curve.damage[i] = damage[i].get<double>();
    valid = curve.nmse[i] >= kLeastError && curve.nmse[i] < 1 && curve.damage[i] >= kLeastDamage &&
            curve.damage[i] <= kMostDamage;
  }
  if (!valid || (curve.points == 2 && curve.nmse[0] >= curve.nmse[1])) {
    throw Error(ErrorCode::bad_input, where,
                fmt::format("expected one or two rising 'nmse' from {} to 1 and as many 'damage' "
                            "from {} to {}",
                            kLeastError, kLeastDamage, kMostDamage));
  }
  return curve;
}

// A null `conditions` accepts any conditions.
std::map<std::string, DamageCurve> read_curves(std::string_view text, const std::string& where,
                                               const std::string_view* conditions) {
  const Json json = parse_json(text, where);
  if (!json.is_object()) {
    throw Error(ErrorCode::bad_input, where,
                "found " + describe_json(json) + ", expected an object");
  }
  get_int(json, "walsh_sensitivity", where, kVersion, kVersion);
  const std::string found = get_string(json, "conditions", where);
  if (conditions != nullptr && found != *conditions) {
    throw Error(ErrorCode::bad_input, where,
                "was measured under other conditions: '" + found + "', expected '" +
                    std::string(*conditions) + "'");
  }
  std::map<std::string, DamageCurve> curves;
  for (const Json& item : get_array(json, "tensors", where)) {
    if (!item.is_object()) throw Error(ErrorCode::bad_input, where, "a tensor is no object");
    const std::string name = get_string(item, "tensor", where);
    if (!curves.emplace(name, parse_curve(item, where + ": " + name)).second)
      throw Error(ErrorCode::bad_input, where, "'" + name + "' is there twice");
  }
  return curves;
}

}  // namespace

std::string format_sensitivity(const Candidates& candidates, const Sensitivity& sensitivity,
                               std::string_view conditions) {
  Json tensors = Json::array();
  for (size_t t = 0; t < candidates.tensors().size(); ++t) {
    const DamageCurve& curve = sensitivity.curves[t];
    Json errors = Json::array(), damage = Json::array();
    for (int i = 0; i < curve.points; ++i) {
      errors.push_back(curve.nmse[i]);
      damage.push_back(curve.damage[i]);
    }
    tensors.push_back(
        {{"tensor", candidates.tensors()[t].name}, {"nmse", errors}, {"damage", damage}});
  }
  const Json json = {
      {"walsh_sensitivity", kVersion}, {"conditions", conditions}, {"tensors", tensors}};
  return json.dump(1) + "\n";
}

std::optional<std::string> read_sensitivity(const std::string& path) {
  std::error_code unreadable;
  if (path.empty() || (!std::filesystem::exists(path, unreadable) && !unreadable)) return {};
  std::string text = read_text_file(path, kMaxBytes);
  read_curves(text, path, nullptr);
  return text;
}

std::map<std::string, DamageCurve> parse_curves(std::string_view text, const std::string& where,
                                                std::string_view conditions) {
  return read_curves(text, where, &conditions);
}

Sensitivity parse_sensitivity(std::string_view text, const std::string& where,
                              const Candidates& candidates, std::string_view conditions) {
  const std::map<std::string, DamageCurve> curves = parse_curves(text, where, conditions);
  Sensitivity result;
  for (const CandidateTensor& tensor : candidates.tensors()) {
    const auto it = curves.find(tensor.name);
    if (it == curves.end())
      throw Error(ErrorCode::bad_input, where, "'" + tensor.name + "' is not there");
    result.curves.push_back(it->second);
  }
  predict_damage(candidates, result);
  return result;
}

}  // namespace walsh
