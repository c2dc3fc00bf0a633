#include "codec/retired.h"

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "base/aligned.h"
#include "base/half.h"
#include "codec/codebooks.h"
#include "codec/codec.h"
#include "codec/trellis/retired_codebooks.h"
#include "codec/trellis/trellis.h"
#include "codec/trellis/trellis_profiles.h"

namespace walsh {
namespace {

constexpr int64_t kGroup = 32;  // In a loaded tensor this many weights share a scale.

// Tables of two weights per step have 1024 entries made of 256 pairs of magnitudes. In an index,
// bit 9 is the sign of the second weight and bit 1 that of the first; bits 0 and 8..2 choose the
// magnitudes.
constexpr int kPairTableBits = 10;
using PairTable = std::array<int8_t, 2 << kPairTableBits>;

constexpr PairTable expand_pairs(const uint8_t (&magnitudes)[512]) {
  PairTable table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    const uint32_t index = i / 2, value = i % 2;
    const uint32_t entry = (index & 1) << 7 | (index >> 2 & 127);
    const bool negative = (index >> (value == 0 ? 1 : kPairTableBits - 1) & 1) != 0;
    const int magnitude = magnitudes[2 * entry + value];
    table[i] = static_cast<int8_t>(negative ? -magnitude : magnitude);
  }
  return table;
}

constexpr PairTable kPairs5 = expand_pairs(detail::kPairs5Bit);
constexpr PairTable kPairs6 = expand_pairs(detail::kPairs6Bit);
constexpr PairTable kPairs7 = expand_pairs(detail::kPairs7Bit);

constexpr Format retired(std::string_view name, const TrellisCode& code) {
  Format format = trellis_row(name, code);
  format.retired = true;
  return format;
}

// Makes a code with one weight per step. The Weyl sequence of its multiplier, s -> frac(s M /
// 2^32), spreads successors and predecessors of every state evenly.
constexpr Format weyl(std::string_view name, int bits, uint32_t multiplier) {
  TrellisCode code;
  code.step_bits = bits;
  code.state_bits = 12;
  code.table_bits = 8;
  code.multiplier = multiplier;
  code.table = detail::kNormalQuantilesI8;
  code.unit = detail::kNormalQuantilesUnit;
  Format format = retired(name, code);
  format.activation_planes = bits == 6 ? 2 : 1;
  return format;
}

// Makes a code with two weights per step.
constexpr Format pairs(std::string_view name, int bits, uint32_t multiplier, const PairTable& table,
                       float unit) {
  TrellisCode code;
  code.step_bits = bits;
  code.state_bits = 14;
  code.values = 2;
  code.table_bits = kPairTableBits;
  code.multiplier = multiplier;
  code.table = table.data();
  code.unit = unit;
  return retired(name, code);
}

constexpr Format kRetired[] = {
    weyl("tc2:L12", 2, 0xc4ce39dfu),
    weyl("tc3:L12", 3, 0x9f9d064du),
    weyl("tc4:L12", 4, 0x7722a07fu),
    weyl("tc5", 5, 0x59f08977u),
    weyl("tc6", 6, 0xf85e8787u),
    pairs("tc2.5:L14", 5, 0x361d78abu, kPairs5, detail::kPairs5BitUnit),
    pairs("tc3:v2", 6, 0xabecfc35u, kPairs6, detail::kPairs6BitUnit),
    pairs("tc3.5:L14", 7, 0xaa13446du, kPairs7, detail::kPairs7BitUnit),
};

// Each rate had one code once, and files named that code by the rate.
constexpr std::pair<std::string_view, std::string_view> kOldNames[] = {{"tc2", "tc2:L12"},
                                                                       {"tc2.5", "tc2.5:L14"},
                                                                       {"tc3", "tc3:L12"},
                                                                       {"tc3.5", "tc3.5:L14"},
                                                                       {"tc4", "tc4:L12"}};

// Returns the codes that are still written, marked as retired, because they had profiles with fewer
// state bits.
std::vector<Format> written_codes() {
  std::vector<Format> rows;
  for (const Format& format : all_formats()) {
    if (format.kind != CodeKind::trellis) continue;
    rows.push_back(format);
    rows.back().retired = true;
  }
  return rows;
}

const Format* find_retired(std::string_view name) {
  static const TrellisProfiles tables(kRetired, std::array{8, 10, 12, 14, 16});
  static const TrellisProfiles products(written_codes(), std::array{8, 10, 12});
  for (const Format& format : kRetired)
    if (format.name == name) return &format;
  if (const Format* profile = tables.find(name)) return profile;
  const Format* profile = products.find(name);
  return profile != nullptr && profile->trellis.state_bits < 14 ? profile : nullptr;
}

constexpr Format eight_bits(int planes) {
  Format format;
  format.name = "tc:8bit";
  format.kind = CodeKind::scalar;
  format.passes = 1;
  format.code[0].bits = 8;
  format.code[0].group = kGroup;
  format.rotation_block = 256;
  format.activation_planes = planes;
  format.note = "a trellis code that is no longer written, as eight bits in memory";
  return format;
}
constexpr Format kEightBits[] = {eight_bits(1), eight_bits(2)};

}  // namespace

const Format* retired_format(std::string_view name) {
  constexpr std::string_view kBlocks = ":blocks";
  const bool blocks = name.ends_with(kBlocks);
  const std::string_view rate = name.substr(0, name.size() - (blocks ? kBlocks.size() : 0));
  for (const auto& [old, now] : kOldNames)
    if (old == rate) return find_retired(std::string(now).append(blocks ? kBlocks : ""));
  return find_retired(name);
}

const Format& loaded_format(const Format& format) {
  return format.retired ? kEightBits[format.activation_planes - 1] : format;
}

Tensor loaded_tensor(Tensor tensor) {
  if (!tensor.format->retired) return tensor;
  const TrellisCode& code = tensor.format->trellis;
  const int64_t padded = padded_cols(*tensor.format, tensor.cols);
  const int64_t tile_row = padded / kTileCols * tile_bytes(code), groups = padded / kGroup;
  Tensor out = tensor;
  out.format = &loaded_format(*tensor.format);
  out.pass[0] = {};
  auto codes = std::make_shared<AlignedArray<std::byte>>(
      static_cast<size_t>(detail::bytes_of(tensor.rows, static_cast<uint64_t>(padded))));
  auto scales = std::make_shared<AlignedArray<uint16_t>>(
      static_cast<size_t>(detail::bytes_of(tensor.rows, static_cast<uint64_t>(groups))));
  for (int64_t row = 0; row < tensor.rows; ++row) {
    const std::byte* tiles = tensor.pass[0].codes.data() + row / kTileRows * tile_row;
    for (int64_t col = 0; col < padded; ++col) {
      const int t =
          tile_position(static_cast<int>(row % kTileRows), static_cast<int>(col % kTileCols));
      const uint32_t state =
          trellis_state(code, tiles + col / kTileCols * tile_bytes(code), t / code.values);
      codes->data()[row * padded + col] =
          static_cast<std::byte>(trellis_level_i8(code, state, t % code.values));
    }
    for (int64_t g = 0; g < groups; ++g) {
      uint16_t halves[2];
      float scale = code.unit;
      const int count = kTrellisCodec.scales(tensor, 0, row, g * kGroup, halves);
      for (int i = 0; i < count; ++i)
        scale *= f16_to_f32(halves[i]);
      scales->data()[row * groups + g] = f32_to_f16(scale);
    }
  }
  out.pass[0].codes = {codes->data(), codes->size()};
  out.pass[0].scales = std::as_bytes(std::span(scales->data(), scales->size()));
  out.owner = std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(
      std::move(codes), std::move(scales));
  return out;
}

std::string about_retired(const std::string& where, const std::set<std::string_view>& names) {
  std::string list;
  for (const std::string_view name : names)
    list += (list.empty() ? "" : ", ") + std::string(name);
  return where + ": its " + list +
         " weights take 8.5 bits each in memory, because walsh no longer " +
         "has kernels for them; quantize the original model again to have them small";
}

}  // namespace walsh
