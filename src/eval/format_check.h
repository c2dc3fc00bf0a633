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
  double bpw = 0;           // these are bits per weight of rows of 1024, scales included
  double nmse_normal = 0;   // weights are iid N(0,1)
  double nmse_t4 = 0;       // weights are iid from Student's t, with 4 degrees of freedom
  double nmse_outlier = 0;  // 1 % of the columns of N(0,1) are x20, row norms are lognormal(0.5)
  double bound = 0;         // nmse_normal must not exceed it; 0 means that there is none

  bool passes() const { return bound == 0 || nmse_normal <= bound * kSamplingError; }
};

// Says whether everything in a report is measured, or only the errors to which a bound applies.
enum class Measure { everything, normal };

// Returns one report per name, in that order, or reports of all formats if `names` is empty. The
// result is deterministic. Throws usage for an unknown name.
std::vector<FormatReport> check_formats(ThreadPool& pool, std::span<const std::string> names,
                                        Measure what = Measure::everything);

// Shows how a format encodes a normal matrix of 32 x 256 weights (32 tiles of a trellis). The
// sample has the bytes that the format stores, and the weights that they decode to.
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
