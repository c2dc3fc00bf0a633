#include "codec/encode/bounds.h"

#include <fmt/format.h>

namespace walsh {
namespace {

// Rotated weights of trained models have errors of up to 1.09 times the bound, in any format and at
// any effort (measured).
constexpr double kRotatedRatio = 1.15;
// Weights without a rotation need not look Gaussian. A group of 32 with a single weight that is not
// 0 has 7.5 times the error that the largest of 32 normal weights gives.
constexpr double kPlainRatio = 8;

}  // namespace

bool misses_bound(const Format& format, double nmse) {
  const double ratio = format.rotation_block != 0 ? kRotatedRatio : kPlainRatio;
  return format.bound > 0 && !(nmse <= ratio * format.bound);
}

std::string missed_bound_text(const std::string& tensor, const Format& format, double nmse) {
  return fmt::format("{}: NMSE {:.4g} is {:.2f} times the bound {:.4g} of {}", tensor, nmse,
                     nmse / format.bound, format.bound, format.name);
}

}  // namespace walsh
