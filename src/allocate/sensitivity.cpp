#include "allocate/sensitivity.h"

#include <algorithm>
#include <cmath>

#include "allocate/stand_in.h"

namespace walsh {
namespace {

// Formats with less error do too little damage to be measured with few tokens; their damage is read
// off the curve, which is a straight line there.
constexpr double kLeastMeasured = 2e-3;

}  // namespace

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

void predict_damage(const Candidates& candidates, Sensitivity& sensitivity) {
  const auto& formats = candidates.formats();
  sensitivity.damage.clear();
  for (size_t t = 0; t < sensitivity.curves.size(); ++t) {
    std::vector<double>& damage = sensitivity.damage.emplace_back();
    for (const Format* format : formats)
      damage.push_back(sensitivity.curves[t].at(declared_nmse(*format)));
    // A tensor that stays unquantized does no damage.
    damage.resize(static_cast<size_t>(candidates.count(t)));
  }
}

std::vector<double> measured_errors(const std::vector<const Format*>& formats) {
  double most = 0;
  for (const Format* format : formats)
    most = std::max(most, declared_nmse(*format));
  double least = most;
  for (const Format* format : formats)
    if (const double error = declared_nmse(*format); error >= kLeastMeasured)
      least = std::min(least, error);
  if (least < most) return {least, most};
  return {most};
}

Sensitivity measure_sensitivity(const Candidates& candidates, ErringModel& model,
                                ErringModel::Text& text,
                                const std::function<void(int64_t, int64_t)>& progress) {
  const std::vector<double> levels = measured_errors(candidates.formats());
  Sensitivity result;
  for (const std::vector<double>& damage : model.alone(text, levels, progress)) {
    DamageCurve& curve = result.curves.emplace_back();
    for (const double value : damage) {
      curve.nmse[curve.points] = levels[static_cast<size_t>(curve.points)];
      curve.damage[curve.points] = std::clamp(value, kLeastDamage, kMostDamage);
      ++curve.points;
    }
  }
  predict_damage(candidates, result);
  return result;
}

}  // namespace walsh
