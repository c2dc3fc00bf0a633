#include "allocate/sensitivity.h"

#include <algorithm>
#include <cmath>

#include "allocate/noise.h"
#include "codec/codec.h"
#include "codec/trellis/trellis.h"
#include "walsh/error.h"
#include "weights/open.h"

namespace walsh {
namespace {

// Formats with less error do too little damage to be measured with few tokens; theirs is read off
// the curve, which is a straight line there.
constexpr double kLeastMeasured = 2e-3;

constexpr uint64_t kNoiseSeed = 0x5eed;

// The candidates to measure: those with the largest and the smallest error, except wide ones.
std::vector<int> measured_candidates(const std::vector<const Format*>& formats) {
  const auto error = [&](int c) { return declared_nmse(*formats[static_cast<size_t>(c)]); };
  std::vector<int> order;
  for (int c = 0; c < static_cast<int>(formats.size()); ++c)
    order.push_back(c);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return error(a) < error(b); });
  const int most = order.back();
  for (const int c : order) {
    if (error(c) < kLeastMeasured) continue;
    if (error(c) >= error(most)) break;
    return {c, most};
  }
  return {most};
}

class Measurement {
 public:
  Measurement(Candidates& candidates, WeightSource& plain, const ReferenceText& text, Probe probe,
              const LoadOptions& load, const SensitivityProgress& progress)
      : candidates_(candidates),
        source_(plain),
        config_(read_config(plain)),
        text_(text),
        probe_(probe),
        load_(load),
        progress_(progress),
        levels_(measured_candidates(candidates.formats())) {
    load_.progress = {};
    total_ = static_cast<int64_t>(levels_.size() * candidates.tensors().size()) * text.windows();
  }

  Sensitivity run() {
    Sensitivity result;
    for (size_t t = 0; t < candidates_.tensors().size(); ++t)
      result.curves.push_back(curve(t));
    predict_damage(candidates_, result);
    return result;
  }

 private:
  DamageCurve curve(size_t tensor) {
    DamageCurve curve;
    for (const int level : levels_) {
      curve.nmse[curve.points] = declared_nmse(*candidates_.formats()[static_cast<size_t>(level)]);
      curve.damage[curve.points] = measure(tensor, level);
      ++curve.points;
    }
    return curve;
  }

  double measure(size_t tensor, int candidate) {
    const std::vector<std::string>& members = candidates_.tensors()[tensor].members;
    for (size_t i = 0; i < members.size(); ++i)
      source_.replace(members[i], disturbed(members[i], candidate, (i << 32) + tensor));
    const Model model = Model::load(source_, config_, load_);
    source_.restore();
    const Estimate damage = text_.divergence(model, [&] {
      if (progress_) progress_(done_, total_);
      ++done_;
    });
    return std::clamp(damage.value, kLeastDamage, kMostDamage);
  }

  Tensor disturbed(const std::string& name, int candidate, uint64_t number) {
    if (probe_ == Probe::encode) return candidates_.decoded(name, candidate);
    const Format& format = *candidates_.formats()[static_cast<size_t>(candidate)];
    const int64_t block = std::max(format.rotation_block, 32);
    return with_rounding_noise(source_.load(name), candidates_.column_scales(name, candidate),
                               block, declared_nmse(format), kNoiseSeed + number, *load_.pool);
  }

  Candidates& candidates_;
  SubstitutedSource source_;
  ModelConfig config_;
  const ReferenceText& text_;
  Probe probe_;
  LoadOptions load_;
  const SensitivityProgress& progress_;
  std::vector<int> levels_;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

Probe parse_probe(std::string_view name) {
  for (const Probe probe : {Probe::encode, Probe::noise})
    if (probe_name(probe) == name) return probe;
  throw Error(ErrorCode::usage, "--allocate-probe",
              "unknown probe '" + std::string(name) + "', expected encode or noise");
}

std::string_view probe_name(Probe probe) {
  return probe == Probe::encode ? "encode" : "noise";
}

double DamageCurve::beta() const {
  if (points < 2) return 0;
  const double beta = (damage[1] / nmse[1] - damage[0] / nmse[0]) / (nmse[1] - nmse[0]);
  return beta > 0 && damage[0] / nmse[0] > beta * nmse[0] ? beta : 0;
}

double DamageCurve::at(double error) const {
  const double b = beta();
  if (b > 0 || points < 2) return std::min(alpha() * error + b * error * error, kMostDamage);
  const double slope = std::log(damage[1] / damage[0]) / std::log(nmse[1] / nmse[0]);
  const bool line = error <= nmse[0] || slope <= 0;
  return std::min(damage[0] * (line ? error / nmse[0] : std::pow(error / nmse[0], slope)),
                  kMostDamage);
}

double DamageCurve::alpha() const {
  return damage[0] / nmse[0] - beta() * nmse[0];
}

double DamageCurve::excess() const {
  return points < 2 ? 1 : damage[1] / nmse[1] / (damage[0] / nmse[0]);
}

double declared_nmse(const Format& format) {
  if (format.bound > 0) return format.bound;
  if (const auto full_profile = codec_of(format).full_profile) {  // of one that is faster
    const Format& full = full_profile(format);
    if (full.bound > 0) return full.bound;
  }
  throw Error(ErrorCode::usage, "--candidates",
              std::string(format.name) + " declares no error, so its damage cannot be predicted");
}

void predict_damage(const Candidates& candidates, Sensitivity& sensitivity) {
  const auto& formats = candidates.formats();
  sensitivity.damage.clear();
  for (size_t t = 0; t < sensitivity.curves.size(); ++t) {
    std::vector<double>& damage = sensitivity.damage.emplace_back();
    for (const Format* format : formats)
      damage.push_back(sensitivity.curves[t].at(declared_nmse(*format)));
    // the tensor stays unquantized: no damage
    damage.resize(static_cast<size_t>(candidates.count(t)));
  }
}

Sensitivity measure_sensitivity(Candidates& candidates, WeightSource& plain,
                                const ReferenceText& text, Probe probe, const LoadOptions& load,
                                const SensitivityProgress& progress) {
  return Measurement(candidates, plain, text, probe, load, progress).run();
}

}  // namespace walsh
