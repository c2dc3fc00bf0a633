// How much each tensor's rounding hurts: the KL divergence that it causes alone, with the rest of
// the model unquantized.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "allocate/candidates.h"
#include "allocate/reference_text.h"

namespace walsh {

// How a tensor is disturbed while it is measured.
enum class Probe : uint8_t {
  encode,  // the candidates' own rounding errors: exact, but encodes two candidates
  noise    // noise that imitates them (noise.h): costs only the measurement
};
Probe parse_probe(std::string_view name);  // throws usage
std::string_view probe_name(Probe probe);

// The range of damages. Smaller ones do not matter (and zero has no logarithm); larger ones only
// say that the model is broken. Their sums stay finite.
inline constexpr double kLeastDamage = 1e-12, kMostDamage = 1e6;

// Divergence as a function of a tensor's relative squared error D, through one or two measured
// points: alpha D + beta D^2, the first even orders of the error itself; a power of D if a
// coefficient would not be positive; proportional to D with one point.
struct DamageCurve {
  double nmse[2] = {};    // ascending
  double damage[2] = {};  // measured there
  int points = 0;

  double at(double nmse) const;  // limited to kMostDamage
  double alpha() const;          // limit of damage / error as the error vanishes
  // By how much the damage of the larger error exceeds a proportional one; 1: not at all.
  double excess() const;

 private:
  double beta() const;  // 0 if the curve is a power
};

struct Sensitivity {
  std::vector<DamageCurve> curves;  // per tensor
  std::vector<std::vector<double>>
      damage;  // per tensor and candidate; 0 for a tensor that stays unquantized
};

// The relative squared error on Gaussian weights that a format declares. Throws usage if it
// declares none.
double declared_nmse(const Format& format);

// Computes the damage of all candidates from the curves.
void predict_damage(const Candidates& candidates, Sensitivity& sensitivity);

// Called before each window of each measurement with the number done and the total. May throw to
// stop.
using SensitivityProgress = std::function<void(int64_t, int64_t)>;

// Disturbs one tensor at a time and measures on `text`, whose reference is the unquantized model
// over `plain`. Deterministic.
Sensitivity measure_sensitivity(Candidates& candidates, WeightSource& plain,
                                const ReferenceText& text, Probe probe, const LoadOptions& load,
                                const SensitivityProgress& progress = {});

}  // namespace walsh
