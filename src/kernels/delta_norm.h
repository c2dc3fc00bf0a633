// Holds constants of gated delta nets that all devices share.
#pragma once

namespace walsh {

// It is added to the squared length of queries and keys.
inline constexpr float kLengthEpsilon = 1e-6f;
inline constexpr float kSoftplusLinear = 20;  // From here on log(1 + e^x) is taken as x.

}  // namespace walsh
