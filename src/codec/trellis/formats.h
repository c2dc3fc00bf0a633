// Lists the trellis formats that are written. Their profiles are made from these rows
// (trellis_profiles.h).
#pragma once

#include "codec/codebooks.h"
#include "codec/trellis/trellis_profiles.h"

namespace walsh::trellis {

// Makes a code with one product per step of two weights (docs/formats/tc.md). Units are chosen such
// that the root mean square of the levels is 1.06, 1.09, 1.12, 1.18 and 1.25 standard deviations of
// the weights at 2 to 4 bits. Codes of quantiles do best if the search's targets are 3 % larger.
constexpr TrellisCode hashed(TrellisRule rule, int bits, uint32_t multiplier, float unit) {
  const bool quantiles = rule == TrellisRule::quantiles;
  TrellisCode code;
  code.rule = rule;
  code.step_bits = bits;
  code.state_bits = 16;
  code.values = 2;
  code.multiplier = multiplier;
  code.table_bits = quantiles ? 7 : 0;
  code.table = quantiles ? detail::kNormalQuantiles7I8 : nullptr;
  code.unit = unit;
  code.prescale = quantiles ? 0.97f : 1;
  return code;
}

constexpr Format format(std::string_view name, TrellisCode code, double bound,
                        std::string_view note) {
  Format row = trellis_row(name, code);
  row.bound = bound;
  row.note = note;
  return row;
}

constexpr Format bytes_trellis(std::string_view name, int bits, uint32_t half, float unit,
                               double bound, std::string_view note) {
  return format(name, hashed(TrellisRule::bytes, bits, half * 0x10001u, unit), bound, note);
}

constexpr Format quantile_trellis(std::string_view name, int bits, uint32_t multiplier, float unit,
                                  double bound, std::string_view note) {
  return format(name, hashed(TrellisRule::quantiles, bits, multiplier, unit), bound, note);
}

inline constexpr Format kFormats[] = {
    bytes_trellis("tc2:h", 4, 0x61f7u, 0.02094743f, 0.0727, "trellis, 4 bits per pair of weights"),
    bytes_trellis("tc2.5:h", 5, 0x569fu, 0.02147361f, 0.0376,
                  "trellis, 5 bits per pair of weights"),
    bytes_trellis("tc3:h", 6, 0x5ab1u, 0.02211055f, 0.0195, "trellis, 6 bits per pair of weights"),
    bytes_trellis("tc3.5:h", 7, 0x5ab1u, 0.02329505f, 0.0104,
                  "trellis, 7 bits per pair of weights"),
    bytes_trellis("tc4:h", 8, 0x6797u, 0.02465602f, 0.0056, "trellis, 8 bits per pair of weights"),
    quantile_trellis("tc2:hq", 4, 0x10987a47u, 0.02230551f, 0.0685,
                     "the same with levels from a table, less error, on CPUs only"),
    quantile_trellis("tc2.5:hq", 5, 0x3558d10du, 0.02293676f, 0.0350,
                     "levels from a table, 5 bits per pair, on CPUs only"),
    quantile_trellis("tc3:hq", 6, 0x1363f25du, 0.02356749f, 0.0179,
                     "levels from a table, 6 bits per pair, on CPUs only"),
    quantile_trellis("tc3.5:hq", 7, 0x8d39f163u, 0.02483017f, 0.0093,
                     "levels from a table, 7 bits per pair, on CPUs only"),
    quantile_trellis("tc4:hq", 8, 0xdb3d8fc5u, 0.02630276f, 0.0048,
                     "levels from a table, 8 bits per pair, on CPUs only"),
};

// Maps a name to the format that users should take for it.
struct ShortName {
  std::string_view name, format;
};

// The names of the rates stand for the codes that run on every device.
inline constexpr ShortName kRates[] = {{"tc2", "tc2:h"},
                                       {"tc2.5", "tc2.5:h"},
                                       {"tc3", "tc3:h"},
                                       {"tc3.5", "tc3.5:h"},
                                       {"tc4", "tc4:h"}};

}  // namespace walsh::trellis
