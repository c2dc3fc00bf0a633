// How much each tensor's rounding hurts: the KL divergence that it causes alone, in a model that is
// not quantized otherwise.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "allocate/candidates.h"
#include "allocate/reference_text.h"

namespace walsh {

// What a tensor is disturbed with while it is measured.
enum class Probe : uint8_t {
  encode,  // the candidates' own rounding errors: exact, costs the encoding of two candidates
  noise    // noise that looks like them (noise.h): costs nothing but the measurement
};
Probe parse_probe(std::string_view name);  // throws usage
std::string_view probe_name(Probe probe);

// The range of damages: what is less is less than anything that matters and had no logarithm at
// zero, what is more says no more than that the model is broken. Sums of them stay finite.
inline constexpr double kLeastDamage = 1e-12, kMostDamage = 1e6;

// Divergence as a function of a tensor's relative squared error D, through one or two measured
// points: alpha D + beta D^2, the first even orders of the error itself; a power of D if that needs
// a coefficient that is not positive; proportional to D with one point.
struct DamageCurve {
  double nmse[2] = {};    // ascending
  double damage[2] = {};  // measured there
  int points = 0;

  double at(double nmse) const;  // at most kMostDamage
  double alpha() const;          // damage per error as the error vanishes
  // How much worse than proportional the damage of the larger error is; 1: not at all.
  double excess() const;

 private:
  double beta() const;  // 0 if the curve is a power
};

struct Sensitivity {
  std::vector<DamageCurve> curves;  // per tensor
  std::vector<std::vector<double>>
      damage;  // per tensor and candidate; 0 for one that stays as it is
};

// The relative squared error on Gaussian weights that a format declares. Throws usage for a format
// that declares none.
double declared_nmse(const Format& format);

// Fills in the damage of all candidates from the curves.
void predict_damage(const Candidates& candidates, Sensitivity& sensitivity);

// Called before each window of each measurement: number done, number of all. May throw to stop.
using SensitivityProgress = std::function<void(int64_t, int64_t)>;

// Disturbs one tensor at a time and measures on `text`, whose reference is the unquantized model
// over `plain`. Deterministic.
Sensitivity measure_sensitivity(Candidates& candidates, WeightSource& plain,
                                const ReferenceText& text, Probe probe, const LoadOptions& load,
                                const SensitivityProgress& progress = {});

}  // namespace walsh
