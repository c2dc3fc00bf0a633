#include "formats/format.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/spelling.h"
#include "formats/codebooks.h"
#include "formats/product.h"
#include "formats/product_codebook.h"
#include "formats/trellis.h"
#include "formats/trellis_codebooks.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int kUnit = 32;  // weights in the packing unit

constexpr ScalarCode lloyd_max(int bits, int group) {
  ScalarCode code;
  code.bits = bits;
  code.group = group;
  switch (bits) {
    case 2:
      code.levels = detail::kNormal2Bit;
      code.levels_i8 = detail::kNormal2BitI8;
      code.unit = detail::kNormal2Bit[3] / 127;
      break;
    case 3:
      code.levels = detail::kNormal3Bit;
      code.levels_i8 = detail::kNormal3BitI8;
      code.unit = detail::kNormal3Bit[7] / 127;
      break;
    default:
      code.levels = detail::kNormal4Bit;
      code.levels_i8 = detail::kNormal4BitI8;
      code.unit = detail::kNormal4Bit[15] / 127;
  }
  return code;
}

constexpr ScalarCode interleaved(const float* levels, const int8_t* levels_i8, float unit) {
  ScalarCode code;
  code.bits = 3;
  code.group = 256;
  code.has_offset = true;
  code.levels = levels;
  code.levels_i8 = levels_i8;
  code.unit = unit;
  return code;
}

constexpr ScalarCode absmax(int bits) {
  ScalarCode code;
  code.bits = bits;
  code.group = 32;
  code.fit = ScaleFit::absmax;
  if (bits == 4) {
    code.levels = detail::kLinear4Bit;
    code.levels_i8 = detail::kLinear4BitI8;
  }
  return code;
}

constexpr Format dense(FormatId id, std::string_view name, DType dtype, std::string_view note) {
  Format format;
  format.id = id;
  format.name = name;
  format.dense = true;
  format.dtype = dtype;
  format.note = note;
  return format;
}

constexpr Format coded(FormatId id, std::string_view name, ScalarCode code, int rotation_block,
                       double bound, std::string_view note) {
  Format format;
  format.id = id;
  format.name = name;
  format.kind = CodeKind::scalar;
  format.passes = 1;
  format.code[0] = code;
  format.rotation_block = rotation_block;
  format.bound = bound;
  format.note = note;
  return format;
}

constexpr Format residual(FormatId id, std::string_view name, int bits, int residual_bits,
                          double bound, int planes, std::string_view note) {
  Format format = coded(id, name, lloyd_max(bits, 128), 128, bound, note);
  format.passes = 2;
  format.code[1] = lloyd_max(residual_bits, 128);
  format.activation_planes = planes;
  return format;
}

// Multipliers whose Weyl sequence s -> frac(s M / 2^32) spreads successors and predecessors of
// every state evenly, found by search (docs/formats/tc.md).
constexpr TrellisCode weyl(int bits, uint32_t multiplier, float prescale) {
  TrellisCode code;
  code.step_bits = bits;
  code.state_bits = 12;
  code.table_bits = 8;
  code.multiplier = multiplier;
  code.table = detail::kNormalQuantilesI8;
  code.unit = detail::kNormalQuantilesUnit;
  code.prescale = prescale;
  return code;
}

// Two weights per step from trained tables of pairs (tools/train_trellis.cpp).
template <const uint8_t (&kMagnitudes)[2 * kPairMagnitudes]>
constexpr PairTable kPairs = expand_pairs(kMagnitudes);

constexpr TrellisCode pairs(int bits, uint32_t multiplier, const PairTable& table, float unit) {
  TrellisCode code;
  code.step_bits = bits;
  code.state_bits = 14;
  code.values = 2;
  code.table_bits = kPairTableBits;
  code.multiplier = multiplier;
  code.table = table.data();
  code.unit = unit;
  return code;
}

// One product per step of two weights (docs/formats/tc.md). Units are such that the root mean
// square of the levels is 1.06, 1.09, 1.12, 1.18 and 1.25 standard deviations of the weights at 2
// to 4 bits. Those of quantiles come out best of a search for targets that are 3 % larger.
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

constexpr Format trellis(FormatId id, std::string_view name, TrellisCode code, double bound,
                         std::string_view note) {
  Format format;
  format.id = id;
  format.name = name;
  format.kind = CodeKind::trellis;
  format.passes = 1;
  format.trellis = code;
  format.rotation_block = 256;
  format.bound = bound;
  format.note = note;
  return format;
}

constexpr Format bytes_trellis(FormatId id, std::string_view name, int bits, uint32_t half,
                               float unit, double bound, std::string_view note) {
  return trellis(id, name, hashed(TrellisRule::bytes, bits, half * 0x10001u, unit), bound, note);
}

constexpr Format quantile_trellis(FormatId id, std::string_view name, int bits, uint32_t multiplier,
                                  float unit, double bound, std::string_view note) {
  return trellis(id, name, hashed(TrellisRule::quantiles, bits, multiplier, unit), bound, note);
}

constexpr Format tc6() {
  Format format = trellis(FormatId::tc6, "tc6", weyl(6, 0xf85e8787u, 1.37f), 0.00037,
                          "trellis from a table, 6 bits");
  format.activation_planes = 2;
  return format;
}

constexpr Format q8_0() {
  Format format = coded(FormatId::q8_0, "q8_0", absmax(8), 0, 3.0e-5,
                        "GGUF baseline, not rotated; bound: measured 2.9e-5");
  format.activation_planes = 2;
  return format;
}

constexpr ScalarCode strict() {
  ScalarCode code = interleaved(detail::kStrict, detail::kStrictI8, 0.01f);
  code.start = detail::kStrictStart;
  return code;
}

constexpr ScalarCode ternary_paper() {
  ScalarCode code =
      interleaved(detail::kTernaryPaper, detail::kTernaryI8, detail::kTernaryPaper[2] / 127);
  code.fit = ScaleFit::sigma;
  return code;
}

constexpr ScalarCode interleaved_full(int sub_group) {
  ScalarCode code =
      interleaved(detail::kInterleaved, detail::kInterleavedI8, detail::kInterleaved[7] / 127);
  code.sub_group = sub_group;
  return code;
}

constexpr Format product(std::string_view name, bool own_codebook, std::string_view note) {
  Format format;
  format.id = FormatId::pq3;
  format.name = name;
  format.kind = CodeKind::product;
  format.passes = 1;
  format.product = {128, &detail::kProductCodebook[0][0], detail::kProductResidual,
                    detail::kProductUnit, own_codebook};
  format.rotation_block = 128;
  format.bound = 0.0266;
  format.note = note;
  return format;
}

constexpr Format kFormats[] = {
    dense(FormatId::f32, "f32", DType::f32, "as it is"),
    dense(FormatId::f16, "f16", DType::f16, "half precision"),
    dense(FormatId::bf16, "bf16", DType::bf16, "bfloat16"),
    q8_0(),
    coded(FormatId::q4_0, "q4_0", absmax(4), 0, 7.7e-3,
          "GGUF baseline, not rotated; bound: measured 7.4e-3"),
    coded(FormatId::itq3_s, "itq3_s", interleaved_full(0), 256, 0.0331,
          "interleaved ternary, all eight Lloyd-Max levels"),
    coded(FormatId::itq3_s, "itq3_s:strict", strict(), 256, 0.0590,
          "interleaved ternary, six uniform levels as the ITQ3_S paper has them"),
    coded(FormatId::itq3_s, "itq3_s:ternary",
          interleaved(detail::kTernary, detail::kTernaryI8, detail::kTernary[2] / 127), 256, 0.188,
          "ternary +-1.224 sigma, the best; bound: measured 0.187"),
    coded(FormatId::itq3_s, "itq3_s:ternary-paper", ternary_paper(), 256, 0.265,
          "ternary +-0.798 sigma, the literal rule; bound: theory 0.2633"),
    coded(FormatId::itq3_s8, "itq3_s8", interleaved_full(32), 256, 0.0257,
          "itq3_s with eight sub-scales per block"),
    coded(FormatId::tq2, "tq2", lloyd_max(2, 128), 128, 0.1142, "Lloyd-Max, 2 bits"),
    coded(FormatId::tq3, "tq3", lloyd_max(3, 128), 128, 0.0316, "Lloyd-Max, 3 bits"),
    coded(FormatId::tq4, "tq4", lloyd_max(4, 128), 128, 0.00780, "Lloyd-Max, 4 bits"),
    coded(FormatId::tq2, "tq2:full", lloyd_max(2, 0), 1024, 0.1180,
          "2 bits, one scale per row; bound: measured 0.117"),
    coded(FormatId::tq3, "tq3:full", lloyd_max(3, 0), 1024, 0.0345,
          "3 bits, one scale per row; bound: measured 0.0342"),
    coded(FormatId::tq4, "tq4:full", lloyd_max(4, 0), 1024, 0.0094,
          "4 bits, one scale per row; bound: measured 0.0093"),
    residual(FormatId::tq4_4, "tq4+4", 4, 4, 7.4e-5, 2, "4 bits and a 4-bit residual"),
    residual(FormatId::tq4_2, "tq4+2", 4, 2, 9.9e-4, 1, "4 bits and a 2-bit residual"),
    residual(FormatId::tq3_2, "tq3+2", 3, 2, 3.7e-3, 1, "3 bits and a 2-bit residual"),
    product("pq3", false, "a codebook for four weights and a sign for each"),
    product("pq3:layer", true, "the same with a codebook of 1 KiB trained for each tensor"),
    bytes_trellis(FormatId::tc2_h, "tc2:h", 4, 0x61f7u, 0.02094743f, 0.0727,
                  "trellis of bytes of a product, 4 bits per pair: the fastest, tc2 for short"),
    bytes_trellis(FormatId::tc2_5_h, "tc2.5:h", 5, 0x569fu, 0.02147361f, 0.0376,
                  "trellis of bytes of a product, 5 bits per pair; tc2.5 for short"),
    bytes_trellis(FormatId::tc3_h, "tc3:h", 6, 0x5ab1u, 0.02211055f, 0.0195,
                  "trellis of bytes of a product, 6 bits per pair; tc3 for short"),
    bytes_trellis(FormatId::tc3_5_h, "tc3.5:h", 7, 0x5ab1u, 0.02329505f, 0.0104,
                  "trellis of bytes of a product, 7 bits per pair; tc3.5 for short"),
    bytes_trellis(FormatId::tc4_h, "tc4:h", 8, 0x6797u, 0.02465602f, 0.0056,
                  "trellis of bytes of a product, 8 bits per pair; tc4 for short"),
    quantile_trellis(FormatId::tc2_hq, "tc2:hq", 4, 0x10987a47u, 0.02230551f, 0.0685,
                     "the same with quantiles in place of sums: the least error"),
    quantile_trellis(FormatId::tc2_5_hq, "tc2.5:hq", 5, 0x3558d10du, 0.02293676f, 0.0350,
                     "quantiles, 5 bits per pair"),
    quantile_trellis(FormatId::tc3_hq, "tc3:hq", 6, 0x1363f25du, 0.02356749f, 0.0179,
                     "quantiles, 6 bits per pair"),
    quantile_trellis(FormatId::tc3_5_hq, "tc3.5:hq", 7, 0x8d39f163u, 0.02483017f, 0.0093,
                     "quantiles, 7 bits per pair"),
    quantile_trellis(FormatId::tc4_hq, "tc4:hq", 8, 0xdb3d8fc5u, 0.02630276f, 0.0048,
                     "quantiles, 8 bits per pair"),
    trellis(FormatId::tc2, "tc2:L12", weyl(2, 0xc4ce39dfu, 1.03f), 0.0700,
            "trellis from a table, 2 bits; tc2:L8 to tc2:L16 have other bits of state"),
    trellis(FormatId::tc3, "tc3:L12", weyl(3, 0x9f9d064du, 1.08f), 0.0179,
            "trellis from a table, 3 bits"),
    trellis(FormatId::tc4, "tc4:L12", weyl(4, 0x7722a07fu, 1.10f), 0.0048,
            "trellis from a table, 4 bits"),
    trellis(FormatId::tc5, "tc5", weyl(5, 0x59f08977u, 1.25f), 0.00128,
            "trellis from a table, 5 bits"),
    tc6(),
    trellis(FormatId::tc2_5, "tc2.5:L14",
            pairs(5, 0x361d78abu, kPairs<detail::kPairs5Bit>, detail::kPairs5BitUnit), 0.0362,
            "trellis of pairs of weights, 5 bits per pair"),
    trellis(FormatId::tc3_v2, "tc3:v2",
            pairs(6, 0xabecfc35u, kPairs<detail::kPairs6Bit>, detail::kPairs6BitUnit), 0.0186,
            "trellis of pairs of weights, 6 bits per pair"),
    trellis(FormatId::tc3_5, "tc3.5:L14",
            pairs(7, 0xaa13446du, kPairs<detail::kPairs7Bit>, detail::kPairs7BitUnit), 0.00985,
            "trellis of pairs of weights, 7 bits per pair"),
};

constexpr std::string_view kBlocks = ":blocks";
constexpr int kStateBits[] = {8, 10, 12, 14, 16};
constexpr int kLeastClassBits = 4;  // the search works on vectors of 16 classes

// The profiles of the trellis formats that are not the default.
class TrellisProfiles {
 public:
  TrellisProfiles() {
    for (const Format& format : kFormats) {
      if (format.kind != CodeKind::trellis) continue;
      for (const int bits : kStateBits) {
        if (bits - format.trellis.step_bits < kLeastClassBits) continue;
        for (const bool blocks : {false, true})
          add(format, bits, blocks);
      }
    }
  }

  const Format* find(std::string_view name) const {
    for (const Format& format : formats_)
      if (format.name == name) return &format;
    return nullptr;
  }
  const Format* find(FormatId id, int state_bits, bool block_scales) const {
    for (const Format& format : formats_) {
      if (format.id == id && format.trellis.state_bits == state_bits &&
          format.trellis.block_scales == block_scales) {
        return &format;
      }
    }
    return nullptr;
  }

 private:
  void add(const Format& format, int state_bits, bool blocks) {
    const bool own = state_bits == format.trellis.state_bits;
    if (own && !blocks) return;
    std::string& name = names_.emplace_back(format.name);
    if (!own) name = name.substr(0, name.find(":L")) + ":L" + std::to_string(state_bits);
    if (blocks) name += kBlocks;
    Format& profile = formats_.emplace_back(format);
    profile.name = name;
    profile.trellis.state_bits = state_bits;
    profile.trellis.block_scales = blocks;
    if (state_bits < format.trellis.state_bits) profile.bound = 0;
  }

  std::deque<std::string> names_;
  std::deque<Format> formats_;
};

const TrellisProfiles& trellis_profiles() {
  static const TrellisProfiles profiles;
  return profiles;
}

// Files of the time when every rate had one code name it as the rate.
struct Rate {
  ShortName now;
  std::string_view in_old_files;
};
constexpr Rate kRates[] = {
    {{"tc2", "tc2:h"}, "tc2:L12"}, {{"tc2.5", "tc2.5:h"}, "tc2.5:L14"},
    {{"tc3", "tc3:h"}, "tc3:L12"}, {{"tc3.5", "tc3.5:h"}, "tc3.5:L14"},
    {{"tc4", "tc4:h"}, "tc4:L12"},
};

const Format& format_named(std::string_view name) {
  std::string known;
  for (const Format& format : kFormats) {
    if (format.name == name) return format;
    known += (known.empty() ? "" : ", ") + std::string(format.name);
  }
  if (const Format* profile = trellis_profiles().find(name)) return *profile;
  std::vector<std::string> names;
  for (const Format& format : kFormats)
    names.emplace_back(format.name);
  for (const Rate& rate : kRates)
    names.emplace_back(rate.now.name);
  const std::string meant = did_you_mean(name, names);
  throw Error(ErrorCode::usage, "format",
              "there is no type '" + std::string(name) + "'" +
                  (meant.empty() ? ", expected one of " + known : meant));
}

// As the registry writes it, whatever the case in which it was typed: "TC3:l12" is "tc3:L12".
std::string spelled(std::string_view name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto lower = static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
    const bool profile = lower == 'l' && i > 0 && name[i - 1] == ':' && i + 1 < name.size() &&
                         std::isdigit(static_cast<unsigned char>(name[i + 1])) != 0;
    text += profile ? 'L' : lower;
  }
  return text;
}

// What format_of(rate) is the name of if `name` is a rate, alone or with scales per row and column
// block, or else what `name` itself is the name of.
template <class FormatOf>
const Format& format_of_rate(std::string_view name, const FormatOf& format_of) {
  const bool blocks = name.ends_with(kBlocks);
  const std::string_view rate = name.substr(0, name.size() - (blocks ? kBlocks.size() : 0));
  for (const Rate& known : kRates) {
    if (known.now.name != rate) continue;
    return format_named(std::string(format_of(known)).append(blocks ? kBlocks : ""));
  }
  return format_named(name);
}

}  // namespace

std::span<const Format> all_formats() {
  return kFormats;
}

std::vector<ShortName> short_names() {
  std::vector<ShortName> names;
  for (const Rate& rate : kRates)
    names.push_back(rate.now);
  return names;
}

const Format& get_format(std::string_view name) {
  return format_of_rate(spelled(name), [](const Rate& rate) { return rate.now.format; });
}

const Format& stored_format(std::string_view name) {
  return format_of_rate(name, [](const Rate& rate) { return rate.in_old_files; });
}

const Format& trellis_profile(const Format& format, int state_bits, bool block_scales) {
  for (const Format& base : kFormats) {
    if (base.kind == CodeKind::trellis && base.id == format.id &&
        base.trellis.state_bits == state_bits && !block_scales) {
      return base;
    }
  }
  if (const Format* found = trellis_profiles().find(format.id, state_bits, block_scales)) {
    return *found;
  }
  throw Error(ErrorCode::usage, "format",
              std::string(format.name) + " has no profile with " + std::to_string(state_bits) +
                  " state bits");
}

const Format& fast_trellis_profile(const Format& format) {
  const bool blocks = format.trellis.block_scales;
  for (const Format& base : kFormats) {
    if (base.id != format.id || base.trellis.state_bits != format.trellis.state_bits) continue;
    return trellis_profile(format, format.trellis.state_bits - 2, blocks);
  }
  return format;
}

const Format& dense_format(DType dtype) {
  return *std::find_if(std::begin(kFormats), std::end(kFormats),
                       [&](const Format& f) { return f.dense && f.dtype == dtype; });
}

int64_t padded_cols(const Format& format, int64_t cols) {
  return format.dense ? cols : round_up(cols, kUnit);
}

int64_t groups_per_row(const ScalarCode& code, int64_t padded) {
  return code.group == 0 ? 1 : (padded + code.group - 1) / code.group;
}

int64_t sub_groups_per_row(const ScalarCode& code, int64_t padded) {
  return code.sub_group == 0 ? 0 : (padded + code.sub_group - 1) / code.sub_group;
}

int64_t code_bytes_per_row(const ScalarCode& code, int64_t padded) {
  return padded / kUnit * (kUnit / 8 * code.bits);
}

}  // namespace walsh
