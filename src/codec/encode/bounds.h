// Compares the measured error of a tensor with the bound of its format, which is valid for N(0,1).
#pragma once

#include <string>

#include "codec/format.h"

namespace walsh {

// Returns true if the error is clearly larger than that of weights as Gaussian as a rotation makes
// them. Returns false for formats without a bound. The result means nothing for calibrated tensors,
// whose weights may have larger errors where the output is not sensitive to them.
bool misses_bound(const Format& format, double nmse);

// Returns a text such as "TENSOR: NMSE 0.05 is 1.58 times the bound 0.0316 of tq3".
std::string missed_bound_text(const std::string& tensor, const Format& format, double nmse);

}  // namespace walsh
