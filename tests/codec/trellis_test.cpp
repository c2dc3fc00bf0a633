// Tests the layout of tiles, the states of a bit stream, and their decoded values.
#include "codec/trellis/trellis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/half.h"
#include "base/random.h"
#include "codec/tensor.h"
#include "codec/trellis/trellis_profiles.h"
#include "rotate/rotation.h"
#include "walsh/error.h"

namespace walsh {
namespace {

std::vector<std::byte> random_bytes(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& b : bytes)
    b = static_cast<std::byte>(random.next() & 0xff);
  return bytes;
}

// Returns codes that are written, and those of one weight per step and of tables, which are read.
std::vector<TrellisCode> some_codes() {
  std::vector<TrellisCode> codes;
  for (const char* name :
       {"tc2:h", "tc2.5:h", "tc3:h", "tc3.5:h", "tc4:h", "tc3:hq", "tc3:h:L14", "tc3:h:L12",
        "tc2:L8", "tc3:L12", "tc4:L16", "tc5", "tc6:L10", "tc2.5:L14", "tc3:v2", "tc3.5:L16"})
    codes.push_back(stored_format(name).trellis);
  return codes;
}

TEST(TrellisProfiles, areFoundByNameAndByParameters) {
  for (const char* base : {"tc2:h", "tc2.5:h", "tc3:h", "tc3.5:h", "tc4:h", "tc2:hq", "tc4:hq"}) {
    const Format& format = get_format(base);
    EXPECT_EQ(format.trellis.state_bits, 16);
    EXPECT_EQ(&trellis_profile(format, 16, false), &format);
    std::set<std::string_view> names;
    for (int bits : {14, 16}) {
      for (bool blocks : {false, true}) {
        const Format& profile = trellis_profile(format, bits, blocks);
        EXPECT_EQ(profile.trellis.state_bits, bits);
        EXPECT_EQ(profile.trellis.block_scales, blocks);
        EXPECT_EQ(profile.trellis.multiplier, format.trellis.multiplier);
        EXPECT_EQ(&get_format(profile.name), &profile);
        EXPECT_EQ(&stored_format(profile.name), &profile);
        EXPECT_EQ(&trellis_profile(profile, 16, false), &format);
        names.insert(profile.name);
      }
    }
    EXPECT_EQ(names.size(), 4u);
  }
  EXPECT_EQ(get_format("tc3:h:L14:blocks").name, "tc3:h:L14:blocks");
  EXPECT_THROW(get_format("tc3:h:L11"), Error);
  EXPECT_THROW(trellis_profile(get_format("tc3:h"), 12, false), Error);
}

TEST(TrellisProfiles, fastOnesHaveTwoStateBitsLess) {
  for (const auto& [name, fast] : {std::pair{"tc3:h", "tc3:h:L14"},
                                   {"tc3:h:blocks", "tc3:h:L14:blocks"},
                                   {"tc3:h:L14", "tc3:h:L14"},
                                   {"tc4:hq", "tc4:hq:L14"}}) {
    EXPECT_EQ(fast_trellis_profile(get_format(name)).name, fast);
  }
}

TEST(ListedFormats, AreFewAndHaveNoVariantsInTheirNames) {
  EXPECT_LE(listed_formats().size(), 25u);
  for (const Format* format : listed_formats()) {
    EXPECT_EQ(listed_name(*format).find(':'), std::string_view::npos) << format->name;
    EXPECT_EQ(&get_format(listed_name(*format)), format);
  }
  EXPECT_EQ(listed_name(get_format("tc3:h")), "tc3");
  EXPECT_EQ(listed_name(get_format("tc3:hq")), "tc3:hq");
}

TEST(TrellisLevels, areNormalQuantilesOfAWeylSequence) {
  for (const auto& [name, multiplier] : {std::pair{"tc2:L12", 0xC4CE39DFu},
                                         {"tc3:L12", 0x9F9D064Du},
                                         {"tc4:L12", 0x7722A07Fu},
                                         {"tc5", 0x59F08977u},
                                         {"tc6", 0xF85E8787u}}) {
    const TrellisCode& code = stored_format(name).trellis;
    for (uint32_t state = 0; state < 1u << 16; state += 7) {
      const uint32_t index = static_cast<uint32_t>(uint64_t{state} * multiplier) >> 24;
      // N(0,1) has the share (index + 1/2) / 256 below the level, up to rounding to int8.
      const double level = trellis_level(code, state, 0);
      const double share = 0.5 * std::erfc(-level / std::sqrt(2.0));
      const double density = std::exp(-level * level / 2) / std::sqrt(2 * M_PI);
      const double rounding = 0.51 * static_cast<double>(code.unit) * density + 1e-4;
      EXPECT_NEAR(share, (index + 0.5) / 256, rounding) << name << ' ' << state;
    }
  }
}

TEST(TrellisLevels, ofProductsAreSumsOfBytesOrQuantiles) {
  for (const auto& [name, deviations] : {std::pair{"tc2:h", 1.06},
                                         {"tc2.5:h", 1.09},
                                         {"tc3:h", 1.12},
                                         {"tc3.5:h", 1.18},
                                         {"tc4:h", 1.25}}) {
    const TrellisCode& code = get_format(name).trellis;
    EXPECT_EQ(code.state_bits, 16);
    double sum = 0, square = 0;
    for (uint32_t state = 0; state < 1u << 16; ++state) {
      // `low` is the lower half of the product, `high` that plus the carries into the upper one.
      const uint32_t half = code.multiplier & 0xffffu;
      const uint32_t low = state * half & 0xffffu, high = (state * half >> 16) + low;
      for (int v = 0; v < 2; ++v) {
        const int level = static_cast<int>((low >> 8 * v & 127) + (high >> 8 * v & 127)) - 127;
        ASSERT_EQ(trellis_level_i8(code, state, v), level) << name << ' ' << state;
        sum += level;
        square += level * level;
      }
    }
    EXPECT_NEAR(sum / (1 << 17), 0, 1.5) << name;
    EXPECT_NEAR(std::sqrt(square / (1 << 17)) * static_cast<double>(code.unit), deviations, 1e-5);
  }
  const TrellisCode& code = get_format("tc3:hq").trellis;
  for (uint32_t state = 0; state < 1u << 16; state += 5) {
    const auto product = static_cast<uint32_t>(uint64_t{state} * 0x1363f25du);
    for (int v = 0; v < 2; ++v) {
      const double share = ((product >> (16 + 8 * v) & 127) + 0.5) / 128;
      const double level = trellis_level_i8(code, state, v) * 2.660067 / 127;
      const double got = 0.5 * std::erfc(-level / std::sqrt(2.0));
      const double density = std::exp(-level * level / 2) / std::sqrt(2 * M_PI);
      EXPECT_NEAR(got, share, 0.51 * 2.660067 / 127 * density + 1e-4) << state;
    }
  }
}

TEST(TrellisTile, positionsAreAPermutationWithQuadsOfRowsEightApart) {
  std::set<int> seen;
  for (int row = 0; row < 16; ++row) {
    for (int col = 0; col < 16; ++col)
      seen.insert(tile_position(row, col));
  }
  EXPECT_EQ(seen.size(), 256u);
  EXPECT_EQ(*seen.rbegin(), 255);
  for (int q = 0; q < 4; ++q) {
    for (int g = 0; g < 8; ++g) {
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(tile_position(g, 4 * q + i), 32 * g + 8 * q + i);
        EXPECT_EQ(tile_position(g + 8, 4 * q + i), 32 * g + 8 * q + 4 + i);
      }
    }
  }
}

TEST(TrellisTile, columnBlocksAreTheHadamardBlocksOf256) {
  for (int64_t k = 32; k <= 2048; k += 32) {
    const auto segments = rotation_segments(k, 256);
    ASSERT_EQ(column_blocks(k), static_cast<int64_t>(segments.size())) << k;
    for (size_t b = 0; b < segments.size(); ++b) {
      for (int64_t c = segments[b].offset; c < segments[b].offset + segments[b].size; c += 16)
        ASSERT_EQ(column_block(c, k), static_cast<int64_t>(b)) << k << ' ' << c;
    }
  }
}

// Every state appends the bits of its step to the state before, around the end of the tile too.
TEST(TrellisTile, statesShiftInTheBitsOfTheirStep) {
  for (const TrellisCode& code : some_codes()) {
    const auto tile = random_bytes(tile_bytes(code), 5);
    const uint32_t all = (1u << code.state_bits) - 1, low = (1u << code.step_bits) - 1;
    const int steps = tile_steps(code);
    uint32_t before = trellis_state(code, tile.data(), steps - 1);
    for (int t = 0; t < steps; ++t) {
      const uint32_t state = trellis_state(code, tile.data(), t);
      EXPECT_EQ(state, ((before << code.step_bits) | (state & low)) & all) << t;
      before = state;
    }
  }
}

TEST(TrellisTile, theFirstStepHasTheLastBits) {
  const TrellisCode& code = stored_format("tc3:L12").trellis;
  std::vector<std::byte> tile(96);
  tile[95] = std::byte{0xa0};  // bits 765..767 = 101: the symbol of step 0
  EXPECT_EQ(trellis_state(code, tile.data(), 0), 5u);
  EXPECT_EQ(trellis_state(code, tile.data(), 1), 5u << 3);
  EXPECT_EQ(trellis_state(code, tile.data(), 3), 5u << 9);
  EXPECT_EQ(trellis_state(code, tile.data(), 4), 0u);
  tile[0] = std::byte{6};  // step 255, and upper bits of steps 0 to 2
  EXPECT_EQ(trellis_state(code, tile.data(), 255), 6u);
  EXPECT_EQ(trellis_state(code, tile.data(), 0), (6u << 3) | 5u);
}

TEST(TrellisTile, packingInvertsReading) {
  for (const TrellisCode& code : some_codes()) {
    const auto tile = random_bytes(tile_bytes(code), 9);
    std::vector<uint16_t> states;
    for (int t = 0; t < tile_steps(code); ++t)
      states.push_back(static_cast<uint16_t>(trellis_state(code, tile.data(), t)));
    std::vector<std::byte> packed(tile.size(), std::byte{0xff});
    pack_tile(code, states.data(), packed.data());
    EXPECT_EQ(packed, tile);
  }
}

TEST(TrellisTensor, arraysAndTheirShapes) {
  const auto describe = [](std::string_view name, int64_t rows, int64_t cols) {
    std::string text;
    for (const ArraySpec& spec : array_specs(stored_format(name), rows, cols)) {
      text += spec.suffix + " " + std::to_string(spec.rows) + "x" +
              std::to_string(spec.bytes / spec.rows) + ";";
    }
    return text;
  };
  EXPECT_EQ(describe("tc3:L12", 32, 256), "codes 2x1536;scales 32x2;col_scales 1x2;");
  EXPECT_EQ(describe("tc3:L8", 17, 1376), "codes 2x8256;scales 17x2;col_scales 1x14;");
  EXPECT_EQ(describe("tc2:L12:blocks", 17, 1376), "codes 2x5504;scales 17x14;");
  EXPECT_EQ(describe("tc4:L12", 1, 33), "codes 1x512;scales 1x2;col_scales 1x2;");
  EXPECT_EQ(describe("tc5", 17, 1376), "codes 2x13760;scales 17x2;col_scales 1x14;");
  EXPECT_EQ(describe("tc6:blocks", 17, 1376), "codes 2x16512;scales 17x14;");
  EXPECT_EQ(describe("tc3:h", 17, 1376), "codes 2x8256;scales 17x2;col_scales 1x14;");
  EXPECT_EQ(describe("tc2.5:hq:blocks", 17, 1376), "codes 2x6880;scales 17x14;");
  EXPECT_EQ(describe("tc3.5:L14", 17, 1376), "codes 2x9632;scales 17x2;col_scales 1x14;");
  EXPECT_NEAR(nominal_bits(stored_format("tc3:L12")), 3.0, 0.001);
  EXPECT_NEAR(nominal_bits(stored_format("tc5")), 5.0, 0.001);
  EXPECT_NEAR(nominal_bits(stored_format("tc6")), 6.0, 0.001);
  EXPECT_NEAR(nominal_bits(stored_format("tc2.5:L14")), 2.5, 0.001);
  EXPECT_NEAR(nominal_bits(stored_format("tc3:v2")), 3.0, 0.001);
  EXPECT_NEAR(nominal_bits(stored_format("tc3:L12:blocks")), 3.0625, 0.001);
}

TEST(TrellisTensor, valueIsTheProductOfScalesAndLevel) {
  for (const char* name :
       {"tc2:L12", "tc3:L8", "tc4:L16:blocks", "tc3:L10:blocks", "tc5:L10", "tc6:L16", "tc2.5:L14",
        "tc3:v2:blocks", "tc3.5:L14", "tc3:h", "tc3.5:hq:L14:blocks"}) {
    Tensor tensor;
    tensor.format = &stored_format(name);
    tensor.rows = 21;
    tensor.cols = 300;  // padded to 320 = 256 + 64
    const TrellisCode& code = tensor.format->trellis;
    std::vector<std::vector<std::byte>> arrays;
    for (const ArraySpec& spec : array_specs(*tensor.format, tensor.rows, tensor.cols)) {
      auto& array = arrays.emplace_back(random_bytes(static_cast<int64_t>(spec.bytes), 3));
      if (spec.suffix != "codes") {
        for (size_t i = 1; i < array.size(); i += 2)  // halves between 0.5 and 2
          array[i] = (array[i] & std::byte{0x07}) | std::byte{0x38};
      }
    }
    const std::vector<std::span<const std::byte>> spans(arrays.begin(), arrays.end());
    bind_arrays(tensor, spans);
    const auto half = [&](size_t array, int64_t i) {
      const auto* p = reinterpret_cast<const uint16_t*>(arrays[array].data());
      return f16_to_f32(p[i]);
    };
    for (int64_t row = 0; row < tensor.rows; ++row) {
      std::vector<float> out(320);
      decode_pass_row(tensor, 0, row, out.data());
      for (int64_t col = 0; col < 320; ++col) {
        const int64_t tile = row / 16 * 20 + col / 16;
        const int t = tile_position(static_cast<int>(row % 16), static_cast<int>(col % 16));
        const uint32_t state =
            trellis_state(code, arrays[0].data() + tile * tile_bytes(code), t / code.values);
        const int64_t block = col < 256 ? 0 : 1;
        const float scale =
            code.block_scales ? half(1, row * 2 + block) : half(1, row) * half(2, block);
        EXPECT_EQ(out[static_cast<size_t>(col)],
                  scale * trellis_level(code, state, t % code.values))
            << name << ' ' << row << ' ' << col;
      }
    }
  }
}

TEST(TrellisTensor, arraysOfAnotherSizeAreRefused) {
  Tensor tensor;
  tensor.format = &stored_format("tc3:L12");
  tensor.rows = 16;
  tensor.cols = 32;
  const std::vector<std::byte> codes(192), scales(32), cols(2), longer(4);
  const std::span<const std::byte> right[] = {codes, scales, cols};
  EXPECT_NO_THROW(bind_arrays(tensor, right));
  const std::span<const std::byte> wrong[] = {codes, scales, longer};
  EXPECT_THROW(bind_arrays(tensor, wrong), Error);
  EXPECT_THROW(bind_arrays(tensor, std::span(right).first(2)), Error);
}

}  // namespace
}  // namespace walsh
