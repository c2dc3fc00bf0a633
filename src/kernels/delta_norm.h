// All devices share these constants of gated delta nets.
#pragma once

namespace walsh {

inline constexpr float kLengthEpsilon = 1e-6f;  // added to the squared length of queries and keys
inline constexpr float kSoftplusLinear = 20;    // from here on log(1 + e^x) is taken as x

}  // namespace walsh
