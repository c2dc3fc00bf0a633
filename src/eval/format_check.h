// Measures every storage format on synthetic matrices against the bound it must reach.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"

namespace walsh {

// The expected errors of tq2 and tq3 (0.11421, 0.03159) lie at their bounds, and a sample of 1 Mi
// weights scatters by 0.1 %; a bound counts as reached within this factor.
inline constexpr double kSamplingError = 1.003;

// NMSE = ||W - decoded W||^2 / ||W||^2 after a full encode and decode with the format's default
// rotation.
struct FormatReport {
  std::string name;
  double bpw = 0;           // bits per weight, scales included, rows of 1024
  double nmse_normal = 0;   // iid N(0,1)
  double nmse_t4 = 0;       // iid Student t, 4 degrees of freedom
  double nmse_outlier = 0;  // N(0,1), 1 % of the columns x20, row norms lognormal(0.5)
  double bound = 0;         // for nmse_normal; 0: none

  bool passes() const { return bound == 0 || nmse_normal <= bound * kSamplingError; }
};

// What to measure: all that a report holds, or only what a bound speaks of.
enum class Measure { everything, normal };

// One report per name, in that order; all formats when `names` is empty. Deterministic. Throws
// usage for an unknown name.
std::vector<FormatReport> check_formats(ThreadPool& pool, std::span<const std::string> names,
                                        Measure what = Measure::everything);

}  // namespace walsh
