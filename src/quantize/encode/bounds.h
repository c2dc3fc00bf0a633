// A tensor's measured error beside the bound of its format, which speaks of N(0,1).
#pragma once

#include <string>

#include "formats/format.h"

namespace walsh {

// True if the error is more than a little larger than weights explain that are as Gaussian as a
// rotation makes them. False for formats without a bound. Not for calibrated tensors: their weights
// may err more where the output does not feel it.
bool misses_bound(const Format& format, double nmse);

// "TENSOR: NMSE 0.05 is 1.58 times the bound 0.0316 of tq3"
std::string missed_bound_text(const std::string& tensor, const Format& format, double nmse);

}  // namespace walsh
