// Measures every storage format on synthetic matrices against the bound it must reach.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"

namespace walsh {

// A bound counts as reached within this factor: the expected errors of tq2 and tq3 (0.11421,
// 0.03159) lie at their bounds, and a sample of 1 Mi weights scatters by 0.1 %.
inline constexpr double kSamplingError = 1.003;

// Errors are NMSE = ||W - decoded W||^2 / ||W||^2 after a full encode and decode with the format's
// default rotation.
struct FormatReport {
  std::string name;
  double bpw = 0;           // bits per weight, scales included, rows of 1024
  double nmse_normal = 0;   // iid N(0,1)
  double nmse_t4 = 0;       // iid Student t, 4 degrees of freedom
  double nmse_outlier = 0;  // N(0,1), 1 % of the columns x20, row norms lognormal(0.5)
  double bound = 0;         // for nmse_normal; 0: none

  bool passes() const { return bound == 0 || nmse_normal <= bound * kSamplingError; }
};

// Says what to measure: everything in a report, or only what a bound applies to.
enum class Measure { everything, normal };

// Returns one report per name, in that order; of all formats if `names` is empty. Deterministic.
// Throws usage for an unknown name.
std::vector<FormatReport> check_formats(ThreadPool& pool, std::span<const std::string> names,
                                        Measure what = Measure::everything);

// Shows how a format encodes a normal matrix of 32 x 256 weights (32 tiles of a trellis): the bytes
// that it stores, and the weights that they decode to.
struct CodedSample {
  std::vector<std::byte> stored;
  std::vector<float> decoded;

  bool operator==(const CodedSample&) const = default;
};

// Returns samples of the given formats, encoded with the current instruction set.
std::vector<CodedSample> coded_samples(ThreadPool& pool, std::span<const std::string> names);

// Returns whether encoding without vector instructions takes so long (a thousand times as long as
// other formats) that an instruction set is checked by the bytes of a sample: equal bytes have
// equal errors.
bool checked_by_sample(std::string_view name);

}  // namespace walsh
