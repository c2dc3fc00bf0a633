#include "formats/format.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/spelling.h"
#include "formats/codebooks.h"
#include "formats/group_profiles.h"
#include "formats/product.h"
#include "formats/product_codebook.h"
#include "formats/retired.h"
#include "formats/trellis_profiles.h"
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

constexpr Format dense(std::string_view name, DType dtype, std::string_view note) {
  Format format;
  format.name = name;
  format.dense = true;
  format.dtype = dtype;
  format.note = note;
  return format;
}

constexpr Format coded(std::string_view name, ScalarCode code, int rotation_block, double bound,
                       std::string_view note) {
  Format format;
  format.name = name;
  format.kind = CodeKind::scalar;
  format.passes = 1;
  format.code[0] = code;
  format.rotation_block = rotation_block;
  format.bound = bound;
  format.note = note;
  return format;
}

constexpr Format residual(std::string_view name, int bits, int residual_bits, double bound,
                          int planes, std::string_view note) {
  Format format = coded(name, lloyd_max(bits, 128), 128, bound, note);
  format.passes = 2;
  format.code[1] = lloyd_max(residual_bits, 128);
  format.activation_planes = planes;
  return format;
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

constexpr Format trellis(std::string_view name, TrellisCode code, double bound,
                         std::string_view note) {
  Format format = trellis_row(name, code);
  format.bound = bound;
  format.note = note;
  return format;
}

constexpr Format bytes_trellis(std::string_view name, int bits, uint32_t half, float unit,
                               double bound, std::string_view note) {
  return trellis(name, hashed(TrellisRule::bytes, bits, half * 0x10001u, unit), bound, note);
}

constexpr Format quantile_trellis(std::string_view name, int bits, uint32_t multiplier, float unit,
                                  double bound, std::string_view note) {
  return trellis(name, hashed(TrellisRule::quantiles, bits, multiplier, unit), bound, note);
}

constexpr Format q8_0() {
  Format format =
      coded("q8_0", absmax(8), 0, 3.0e-5, "GGUF baseline, not rotated; bound: measured 2.9e-5");
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
    dense("f32", DType::f32, "as it is"),
    dense("f16", DType::f16, "half precision"),
    dense("bf16", DType::bf16, "bfloat16"),
    q8_0(),
    coded("q4_0", absmax(4), 0, 7.7e-3, "GGUF baseline, not rotated; bound: measured 7.4e-3"),
    coded("itq3_s", interleaved_full(0), 256, 0.0331,
          "interleaved ternary, all eight Lloyd-Max levels"),
    coded("itq3_s:strict", strict(), 256, 0.0590,
          "interleaved ternary, six uniform levels as the ITQ3_S paper has them"),
    coded("itq3_s:ternary",
          interleaved(detail::kTernary, detail::kTernaryI8, detail::kTernary[2] / 127), 256, 0.188,
          "ternary +-1.224 sigma, the best; bound: measured 0.187"),
    coded("itq3_s:ternary-paper", ternary_paper(), 256, 0.265,
          "ternary +-0.798 sigma, the literal rule; bound: theory 0.2633"),
    coded("itq3_s8", interleaved_full(32), 256, 0.0257, "itq3_s with eight sub-scales per block"),
    coded("tq2", lloyd_max(2, 128), 128, 0.1142, "Lloyd-Max, 2 bits"),
    coded("tq3", lloyd_max(3, 128), 128, 0.0316, "Lloyd-Max, 3 bits"),
    coded("tq4", lloyd_max(4, 128), 128, 0.00780, "Lloyd-Max, 4 bits"),
    coded("tq2:full", lloyd_max(2, 0), 1024, 0.1180,
          "2 bits, one scale per row; bound: measured 0.117"),
    coded("tq3:full", lloyd_max(3, 0), 1024, 0.0345,
          "3 bits, one scale per row; bound: measured 0.0342"),
    coded("tq4:full", lloyd_max(4, 0), 1024, 0.0094,
          "4 bits, one scale per row; bound: measured 0.0093"),
    residual("tq4+4", 4, 4, 7.4e-5, 2, "4 bits and a 4-bit residual"),
    residual("tq4+2", 4, 2, 9.9e-4, 1, "4 bits and a 2-bit residual"),
    residual("tq3+2", 3, 2, 3.7e-3, 1, "3 bits and a 2-bit residual"),
    product("pq3", false, "a codebook for four weights and a sign for each"),
    product("pq3:layer", true, "the same with a codebook of 1 KiB trained for each tensor"),
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

// The names of the rates, which stand for the codes that run on every device.
constexpr ShortName kRates[] = {{"tc2", "tc2:h"},
                                {"tc2.5", "tc2.5:h"},
                                {"tc3", "tc3:h"},
                                {"tc3.5", "tc3.5:h"},
                                {"tc4", "tc4:h"}};

constexpr std::string_view kBlocks = ":blocks";
constexpr int kFullStateBits = 16, kFastStateBits = 14;

const TrellisProfiles& trellis_profiles() {
  static const TrellisProfiles profiles(kFormats, std::array{kFullStateBits, kFastStateBits});
  return profiles;
}

const GroupProfiles& group_profiles() {
  static const GroupProfiles profiles(kFormats);
  return profiles;
}

const Format* find_format(std::string_view name) {
  for (const Format& format : kFormats)
    if (format.name == name) return &format;
  if (const Format* profile = group_profiles().find(name)) return profile;
  return trellis_profiles().find(name);
}

// As the registry writes it, whatever the case in which it was typed: "TC3:h:l14" is "tc3:h:L14".
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

// Names the types with about the bits of one that only llama.cpp writes: q4_k_m, iq3_xxs. Returns
// an empty text for other names.
std::string instead_of(std::string_view name) {
  std::string_view rest = name.substr(name.starts_with("iq") ? 1 : 0);
  if (rest.size() < 4 || rest[0] != 'q' || rest[2] != '_') return {};
  constexpr std::string_view kNear[] = {"tc2", "tc3 and tq3", "tc4 and tq4", "tq3+2", "tq4+2"};
  const int bits = rest[1] - '0';
  if (bits < 2 || bits > 6) return {};
  return "; it is a type of llama.cpp, and " + std::string(kNear[bits - 2]) +
         (bits == 3 || bits == 4 ? " have" : " has") + " about as many bits";
}

[[noreturn]] void refuse_name(std::string_view name) {
  if (const Format* old = retired_format(name)) {
    throw Error(ErrorCode::usage, "format",
                "'" + std::string(old->name) + "' is read but no longer written: take tc4, tq3+2 " +
                    "(5.25 bits) or tq4+2 (6.25 bits)");
  }
  std::string known;
  std::vector<std::string> names;
  for (const Format* format : listed_formats())
    known += (known.empty() ? "" : ", ") + std::string(listed_name(*format));
  for (const Format& format : kFormats)
    names.emplace_back(format.name);
  for (const ShortName& rate : kRates)
    names.emplace_back(rate.name);
  std::string meant = instead_of(spelled(name));
  if (meant.empty()) meant = did_you_mean(name, names);
  throw Error(ErrorCode::usage, "format",
              "there is no type '" + std::string(name) + "'" +
                  (meant.empty() ? ", expected one of " + known : meant));
}

// The format that a rate stands for, by the part of a name in front of its first colon.
const ShortName* rate_of(std::string_view name) {
  for (const ShortName& rate : kRates)
    if (rate.name == name.substr(0, name.find(':'))) return &rate;
  return nullptr;
}

std::string profile_of_rate(const ShortName& rate, std::string_view name) {
  return std::string(rate.format).append(name.ends_with(kBlocks) ? kBlocks : "");
}

// What a name means that no format has: a rate, or a retired code of one.
const Format* find_meant(std::string_view name) {
  const ShortName* rate = rate_of(name);
  if (rate == nullptr) return nullptr;
  const std::string_view profile = name.substr(rate->name.size());
  if (!profile.empty() && profile != kBlocks && !retired_format(name)) return nullptr;
  return find_format(profile_of_rate(*rate, name));
}

}  // namespace

std::span<const Format> all_formats() {
  return kFormats;
}

std::span<const ShortName> short_names() {
  return kRates;
}

std::string_view listed_name(const Format& format) {
  for (const ShortName& rate : kRates)
    if (rate.format == format.name) return rate.name;
  return format.name;
}

std::vector<const Format*> listed_formats() {
  std::vector<const Format*> listed;
  for (const Format& format : kFormats)
    if (listed_name(format).find(':') == std::string_view::npos) listed.push_back(&format);
  return listed;
}

const Format& get_format(std::string_view name) {
  const std::string text = spelled(name);
  if (const Format* format = find_format(text)) return *format;
  if (const Format* format = find_meant(text)) return *format;
  refuse_name(name);
}

std::string about_name(std::string_view name) {
  const std::string text = spelled(name);
  const std::string quoted = "'" + text + "'";
  const Format* format = find_format(text);
  const Format* meant = format != nullptr ? nullptr : find_meant(text);
  const bool profile = meant != nullptr && text.substr(rate_of(text)->name.size()) != kBlocks;
  if (profile && rate_of(text)->name != text) {
    return quoted + " is read but no longer written: " + std::string(listed_name(*meant)) +
           " is taken in its place";
  }
  if (format == nullptr) format = meant;
  if (format == nullptr || format->kind != CodeKind::trellis) return {};
  if (format->trellis.state_bits == kFastStateBits)
    return quoted + " is what --effort fast makes of " + text.substr(0, text.find(":L"));
  if (format->trellis.block_scales)
    return quoted + ": without ':blocks', matrices that need such scales get them, and no others";
  return {};
}

const Format& stored_format(std::string_view name) {
  if (const Format* format = find_format(name)) return *format;
  if (const Format* format = retired_format(name)) return *format;
  refuse_name(name);
}

const Format& trellis_profile(const Format& format, int state_bits, bool block_scales) {
  for (const Format& base : kFormats) {
    if (base.kind != CodeKind::trellis || !same_code(base.trellis, format.trellis)) continue;
    if (base.trellis.state_bits == state_bits && !block_scales) return base;
    const Format* profile = trellis_profiles().find(base, state_bits, block_scales);
    if (profile != nullptr) return *profile;
  }
  throw Error(ErrorCode::usage, "format",
              std::string(format.name) + " has no profile with " + std::to_string(state_bits) +
                  " state bits");
}

const Format& fast_trellis_profile(const Format& format) {
  return trellis_profile(format, kFastStateBits, format.trellis.block_scales);
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
