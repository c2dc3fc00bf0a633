// Measures how much each tensor's rounding hurts, as the KL divergence that it causes alone, with
// the rest of the model unquantized.
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
// measured points. With two it is alpha D + beta D^2, the first even orders of the error itself, or
// a power of D if a coefficient would not be positive. With one point it is proportional to D.
struct DamageCurve {
  double nmse[2] = {};    // errors are ascending
  double damage[2] = {};  // these were measured at the errors
  int points = 0;

  double at(double nmse) const;  // it is limited to kMostDamage
  double alpha() const;          // it is the limit of damage / error as the error vanishes
  // Returns by how much the damage of the larger error exceeds a proportional one, as a factor that
  // is 1 if it does not.
  double excess() const;

 private:
  double beta() const;  // it is 0 if the curve is a power
};

struct Sensitivity {
  std::vector<DamageCurve> curves;  // each tensor has one
  // Each tensor has a damage per candidate, which is 0 for one that stays unquantized.
  std::vector<std::vector<double>> damage;
};

// Computes the damage of all candidates from the curves.
void predict_damage(const Candidates& candidates, Sensitivity& sensitivity);

// Returns the errors at which tensors are measured, in rising order. They are the largest error of
// all candidates, and the smallest of those that are large enough to be measured.
std::vector<double> measured_errors(const std::vector<const Format*>& formats);

// Measures by letting one tensor at a time err; the result is deterministic. `progress` is called
// as by ErringModel::alone.
Sensitivity measure_sensitivity(const Candidates& candidates, ErringModel& model,
                                ErringModel::Text& text,
                                const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace walsh
