// Measures how much each tensor's rounding hurts: the KL divergence that it causes alone, with the
// rest of the model unquantized.
#pragma once

#include <functional>
#include <vector>

#include "allocate/candidates.h"
#include "allocate/erring_model.h"

namespace walsh {

// Damages are limited to this range. Smaller ones do not matter (and zero has no logarithm); larger
// ones only say that the model is broken. Their sums stay finite.
inline constexpr double kLeastDamage = 1e-12, kMostDamage = 1e6;

// Gives the divergence as a function of a tensor's relative squared error D, through one or two
// measured points: alpha D + beta D^2, the first even orders of the error itself; a power of D if a
// coefficient would not be positive; proportional to D with one point.
struct DamageCurve {
  double nmse[2] = {};    // ascending
  double damage[2] = {};  // measured there
  int points = 0;

  double at(double nmse) const;  // limited to kMostDamage
  double alpha() const;          // limit of damage / error as the error vanishes
  // Returns by how much the damage of the larger error exceeds a proportional one; 1: not at all.
  double excess() const;

 private:
  double beta() const;  // 0 if the curve is a power
};

struct Sensitivity {
  std::vector<DamageCurve> curves;  // per tensor
  std::vector<std::vector<double>>
      damage;  // per tensor and candidate; 0 for a tensor that stays unquantized
};

// Computes the damage of all candidates from the curves.
void predict_damage(const Candidates& candidates, Sensitivity& sensitivity);

// Returns the errors at which tensors are measured, in rising order: the largest error of all
// candidates, and the smallest of those that are large enough to be measured.
std::vector<double> measured_errors(const std::vector<const Format*>& formats);

// Lets one tensor at a time err. Deterministic. `progress` is called as by ErringModel::alone.
Sensitivity measure_sensitivity(const Candidates& candidates, ErringModel& model,
                                ErringModel::Text& text,
                                const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace walsh
