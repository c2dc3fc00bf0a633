#include "codec/format.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/spelling.h"
#include "codec/codec.h"
#include "codec/plain/formats.h"
#include "codec/product/formats.h"
#include "codec/retired.h"
#include "codec/scalar/formats.h"
#include "codec/trellis/formats.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int kUnit = 32;  // Codes are packed in units of this many weights.

// Joins the tables of the rooms in the order that listings have.
template <size_t... Sizes>
constexpr auto joined(const Format (&... rows)[Sizes]) {
  std::array<Format, (Sizes + ...)> all;
  auto next = all.begin();
  ((next = std::copy(std::begin(rows), std::end(rows), next)), ...);
  return all;
}
constexpr auto kFormats =
    joined(plain::kFormats, scalar::kFormats, product::kFormats, trellis::kFormats);

using trellis::kRates, trellis::ShortName;

constexpr std::string_view kBlocks = ":blocks";

const Format* find_format(std::string_view name) {
  for (const Format& format : kFormats)
    if (format.name == name) return &format;
  for (const Codec* codec : all_codecs()) {
    const Format* profile = codec->find_profile ? codec->find_profile(name) : nullptr;
    if (profile != nullptr) return profile;
  }
  return nullptr;
}

// Returns a name in the registry's spelling, however it was typed: "TC3:h:l14" is "tc3:h:L14".
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

// Returns which walsh types have about the bits of a type that only llama.cpp writes, such as
// q4_k_m or iq3_xxs; empty for other names.
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

// Returns the short name of a rate that stands in front of the first colon of a name; null if there
// is none.
const ShortName* rate_of(std::string_view name) {
  for (const ShortName& rate : kRates)
    if (rate.name == name.substr(0, name.find(':'))) return &rate;
  return nullptr;
}

std::string profile_of_rate(const ShortName& rate, std::string_view name) {
  return std::string(rate.format).append(name.ends_with(kBlocks) ? kBlocks : "");
}

// Returns the format that is meant by a name that no format has (a rate, or a retired code of one);
// null if it means none.
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
  if (format == nullptr) return {};
  const Codec& codec = codec_of(*format);
  return codec.about ? codec.about(*format, text) : std::string();
}

const Format& stored_format(std::string_view name) {
  if (const Format* format = find_format(name)) return *format;
  if (const Format* format = retired_format(name)) return *format;
  refuse_name(name);
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
