#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "activation_sums.h"
#include "avx512vbmi/emulated_tiles.h"
#include "base/half.h"
#include "base/random.h"
#include "codec/format.h"
#include "codec/tensor.h"
#include "import/gguf_codes.h"
#include "kernels/ops.h"
#include "random_halves.h"

namespace walsh {
namespace {

using test::random_halves;

int64_t up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Holds a tensor of random codes and scales, and the memory it points at.
struct RandomTensor {
  Tensor tensor;
  std::vector<std::vector<std::byte>> arrays;

  std::vector<std::byte>& add(size_t bytes) { return arrays.emplace_back(bytes); }

  RandomTensor(const Format& format, int64_t rows, int64_t cols, uint64_t seed) {
    Random random(seed);
    tensor.format = &format;
    tensor.rows = rows;
    tensor.cols = cols;
    arrays.reserve(8);
    if (format.kind != CodeKind::scalar) {
      fill_fields(random);
      return;
    }
    const int64_t padded = up(cols, 32) * 32;
    for (int pass = 0; pass < format.passes; ++pass) {
      const ScalarCode& code = format.code[pass];
      PassArrays& target = tensor.pass[pass];
      auto& codes = add(static_cast<size_t>(rows * padded * code.bits / 8));
      for (std::byte& b : codes) {
        b = static_cast<std::byte>(random.next() & 0xff);
        if (code.bits == 8 && b == std::byte{0x80}) b = std::byte{0x81};
      }
      target.codes = codes;
      const int64_t groups = rows * up(padded, code.group ? code.group : padded);
      target.scales = arrays.emplace_back(random_halves(groups, random, 0.01, 0.1));
      if (code.has_offset) {
        target.offsets = arrays.emplace_back(random_halves(groups, random, -0.01, 0.01));
      }
      if (code.sub_group) {
        target.sub_scales =
            arrays.emplace_back(random_halves(rows * up(padded, code.sub_group), random, 0.5, 1.5));
      }
    }
  }

  void fill_fields(Random& random) {
    std::vector<std::span<const std::byte>> spans;
    for (const ArraySpec& spec : array_specs(*tensor.format, tensor.rows, tensor.cols)) {
      auto& array = add(spec.bytes);
      if (spec.suffix == "codes") {
        for (std::byte& b : array)
          b = static_cast<std::byte>(random.next() & 0xff);
      } else if (spec.suffix == "codebook") {
        const int limit = 127 - tensor.format->product.residual;
        for (std::byte& b : array)
          b = static_cast<std::byte>(static_cast<int>(random.below(2 * limit + 1)) - limit);
      } else {
        array = random_halves(static_cast<int64_t>(spec.bytes / 2), random, 0.2, 1.0);
      }
      spans.emplace_back(array);
    }
    bind_arrays(tensor, spans);
  }
};

enum class Values { random, zero, extreme };

// Makes activations with consistent sums and scales; `extreme` is +-127 everywhere.
ActivationsI8 make_activations(int64_t m, int64_t cols, int group, int planes, Values values,
                               uint64_t seed) {
  Random random(seed);
  ActivationsI8 x(m, cols, group, planes);
  for (int8_t& q : x.q) {
    if (values == Values::random)
      q = static_cast<int8_t>(static_cast<int>(random.below(255)) - 127);
    if (values == Values::extreme) q = random.below(8) ? 127 : -127;
  }
  for (float& s : x.scales)
    s = values == Values::zero ? 0.0f : static_cast<float>(0.001 + 0.01 * random.uniform());
  test::complete_activations(x, m);
  return x;
}

double activation(const ActivationsI8& x, int64_t t, int64_t c) {
  double sum = 0;
  for (int64_t v = t * x.planes; v < (t + 1) * x.planes; ++v) {
    sum += static_cast<double>(x.scales.data()[v * x.groups() + c / x.group]) *
           x.q.data()[v * x.cols + c];
  }
  return sum;
}

std::vector<float> run_i8(Isa isa, const PanelMatrix& w, const ActivationsI8& x, int64_t m,
                          bool accumulate) {
  const int64_t ldy = w.rows + 5;
  std::vector<float> y(static_cast<size_t>(m * ldy), 0.5f);
  const int64_t middle = w.panels() / 2;  // two ranges, as two threads would have
  ops(isa).matmul_i8({w, x, m, y.data(), ldy, 0, middle, accumulate});
  ops(isa).matmul_i8({w, x, m, y.data(), ldy, middle, w.panels(), accumulate});
  return y;
}

std::vector<float> run_f32(Isa isa, const PanelMatrix& w, const std::vector<float>& x, int64_t m,
                           bool accumulate) {
  const int64_t ldy = w.rows + 5;
  std::vector<float> y(static_cast<size_t>(m * ldy), 0.5f);
  const int64_t middle = w.panels() / 2;
  ops(isa).matmul_f32({w, x.data(), w.cols, m, y.data(), ldy, 0, middle, accumulate});
  ops(isa).matmul_f32({w, x.data(), w.cols, m, y.data(), ldy, middle, w.panels(), accumulate});
  return y;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> random_floats(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(count);
  for (float& v : x)
    v = static_cast<float>(random.normal());
  return x;
}

struct Shape {
  int64_t rows, cols, m;
};
constexpr Shape kShapes[] = {{1, 32, 1},    {2, 96, 2},    {15, 160, 3},
                             {16, 384, 5},  {17, 896, 8},  {33, 1376, 9},
                             {40, 640, 13}, {49, 256, 33}, {18, 160, 70}};

std::string describe(const Format& format, const Shape& s, Isa isa, int planes) {
  return std::string(format.name) + " " + std::to_string(s.rows) + "x" + std::to_string(s.cols) +
         " m " + std::to_string(s.m) + " planes " + std::to_string(planes) + " " +
         std::string(isa_name(isa));
}

// Runs for all registered formats, those of other programs' files, trellis profiles with the
// extremes of the state's bits, and profiles with smaller groups.
template <typename Body>
void for_coded_formats(const Body& body) {
  for (const Format& format : all_formats()) {
    for (int pass = 0; pass < format.passes; ++pass)
      body(format, pass);
  }
  for (const char* name : {"tc3:h:blocks", "tc4:h:L14:blocks", "tc3:hq:L14", "tc2.5:hq:blocks",
                           "tq2:g64", "tq3:g32", "tq4:g64", "tq4+2:g32"})
    body(get_format(name), 0);
  // GGUF files have Q2_K, Q3_K, Q4_K, Q5_0, Q5_K, Q6_K and MXFP4: 5 and 6 bits, scales per 16.
  for (const uint32_t type : {10u, 11u, 12u, 6u, 13u, 14u, 39u})
    body(*gguf_code_format(type, GgufCodes::keep), 0);
}

TEST(MatmulI8, EveryIsaGivesTheBitsOfRef) {
  uint64_t seed = 1;
  for_coded_formats([&](const Format& format, int pass) {
    for (const Shape& s : kShapes) {
      const RandomTensor t(format, s.rows, s.cols, ++seed);
      const PanelMatrix w = pack_panels(t.tensor, pass);
      const int planes = 1 + static_cast<int>(seed % 2);
      const int group = format.rotation_block || seed % 3 ? kActivationGroup : kPlainGroup;
      const auto x = make_activations(s.m, w.cols, group, planes, Values::random, seed);
      const bool accumulate = seed % 4 < 2;
      const auto want = run_i8(Isa::ref, w, x, s.m, accumulate);
      for (Isa isa : supported_isas()) {
        EXPECT_TRUE(same_bits(run_i8(isa, w, x, s.m, accumulate), want))
            << describe(format, s, isa, planes);
      }
    }
  });
}

// A unit in software computes what the matrix unit of AMX computes. The rest of a row leaves tiles
// half full; 15 vectors behind a tile of 16, or none, are the edges of a batch.
TEST(MatmulI8, TilesGiveTheBitsOfRef) {
  if (!isa_supported(Isa::avx512vbmi)) GTEST_SKIP() << "this machine has no avx512vbmi";
  constexpr Shape kTileShapes[] = {{1, 64, 16},    {33, 224, 31},  {17, 896, 32},
                                   {16, 1376, 47}, {40, 160, 100}, {49, 640, 273}};
  uint64_t seed = 500;
  for_coded_formats([&](const Format& format, int pass) {
    if (format.kind == CodeKind::trellis && format.trellis.rule == TrellisRule::table) return;
    for (int i = 0; i < 2; ++i) {
      const Shape& s = kTileShapes[seed % std::size(kTileShapes)];
      const RandomTensor t(format, s.rows, s.cols, ++seed);
      const PanelMatrix w = pack_panels(t.tensor, pass);
      const int planes = 1 + static_cast<int>(seed % 2);
      const int group = format.rotation_block || seed % 3 ? kActivationGroup : kPlainGroup;
      const Values values = seed % 5 ? Values::random : Values::extreme;
      const auto x = make_activations(s.m, w.cols, group, planes, values, seed);
      const bool accumulate = seed % 4 < 2;
      const auto want = run_i8(Isa::ref, w, x, s.m, accumulate);
      const int64_t ldy = w.rows + 5;
      std::vector<float> y(want.size(), 0.5f);
      const int64_t middle = w.panels() / 2;
      for (const auto& [begin, end] : {std::pair(int64_t{0}, middle), {middle, w.panels()}})
        test::matmul_i8_by_emulated_tiles({w, x, s.m, y.data(), ldy, begin, end, accumulate});
      EXPECT_TRUE(same_bits(y, want)) << describe(format, s, Isa::amx, planes);
    }
  });
}

// Tiles have 64 columns, or as few as a scale is for.
TEST(MatmulI8, TilesMultiplyGroupsOfAnySize) {
  if (!isa_supported(Isa::avx512vbmi)) GTEST_SKIP() << "this machine has no avx512vbmi";
  constexpr int64_t kRows = 16, kCols = 256, kVectors = 16;
  for (const auto& [format, columns] : {std::pair(&get_format("tq4"), 64),
                                        {&get_format("tq4:g64"), 64},
                                        {&get_format("q4_0"), 32},
                                        {gguf_code_format(12, GgufCodes::keep), 32},     // Q4_K
                                        {gguf_code_format(14, GgufCodes::keep), 16}}) {  // Q6_K
    const RandomTensor t(*format, kRows, kCols, 40);
    const PanelMatrix w = pack_panels(t.tensor, 0);
    const auto x = make_activations(kVectors, kCols, kActivationGroup, 1, Values::random, 40);
    std::vector<float> y(kVectors * kRows);
    EXPECT_EQ(test::matmul_i8_by_emulated_tiles({w, x, kVectors, y.data(), kRows, 0, 1, false}),
              kCols / columns)
        << format->name;
  }
}

TEST(MatmulF32, EveryIsaGivesTheBitsOfRef) {
  uint64_t seed = 1000;
  for_coded_formats([&](const Format& format, int pass) {
    for (const Shape& s : kShapes) {
      const RandomTensor t(format, s.rows, s.cols, ++seed);
      const PanelMatrix w = pack_panels(t.tensor, pass);
      const auto x = random_floats(static_cast<size_t>(s.m * w.cols), seed);
      const bool accumulate = seed % 4 < 2;
      const auto want = run_f32(Isa::ref, w, x, s.m, accumulate);
      for (Isa isa : supported_isas()) {
        EXPECT_TRUE(same_bits(run_f32(isa, w, x, s.m, accumulate), want))
            << describe(format, s, isa, 1);
      }
    }
  });
}

// Products fp16 -> fp16 of sub-scales are rounded once more in panels.
double packing_error(const ScalarCode& code) {
  return code.sub_group ? 0x1p-11 : 0.0;
}

TEST(MatmulF32, EqualsADotProductOfTheDecodedRows) {
  uint64_t seed = 2000;
  for_coded_formats([&](const Format& format, int pass) {
    const Shape s{19, 416, 3};
    const RandomTensor t(format, s.rows, s.cols, ++seed);
    const PanelMatrix w = pack_panels(t.tensor, pass);
    const auto x = random_floats(static_cast<size_t>(s.m * w.cols), seed);
    const auto y = run_f32(supported_isas().back(), w, x, s.m, true);
    std::vector<float> row(static_cast<size_t>(w.cols));
    for (int64_t r = 0; r < s.rows; ++r) {
      decode_pass_row(t.tensor, pass, r, row.data());
      for (int64_t m = 0; m < s.m; ++m) {
        double sum = 0, size = 0.5;
        for (int64_t c = 0; c < w.cols; ++c) {
          const double product = static_cast<double>(row[static_cast<size_t>(c)]) *
                                 x[static_cast<size_t>(m * w.cols + c)];
          sum += product;
          size += std::fabs(product);
        }
        const double got = y[static_cast<size_t>(m * (s.rows + 5) + r)] - 0.5;
        EXPECT_NEAR(got, sum, size * (140 * 0x1p-24 + packing_error(format.code[pass])))
            << describe(format, s, Isa::ref, 1);
      }
    }
  });
}

TEST(MatmulI8, DiffersFromTheDecodedRowsOnlyByTheRoundedLevels) {
  uint64_t seed = 3000;
  for_coded_formats([&](const Format& format, int pass) {
    const ScalarCode& code = format.code[pass];  // empty for a trellis, whose levels are integers
    const Shape s{18, 544, 2};
    const RandomTensor t(format, s.rows, s.cols, ++seed);
    const PanelMatrix w = pack_panels(t.tensor, pass);
    double level_error = 0;  // largest |level - unit * int8 level|, as a share of the top level
    for (int i = 0; code.levels && i < 1 << code.bits; ++i) {
      const double rounded = static_cast<double>(code.unit) * code.levels_i8[i];
      level_error = std::max(level_error, std::fabs(code.levels[i] - rounded));
    }
    if (code.levels) {
      EXPECT_LE(level_error, 0.51 * static_cast<double>(code.unit));
    }
    const auto x = make_activations(s.m, w.cols, kActivationGroup, 2, Values::random, seed);
    const auto y = run_i8(supported_isas().back(), w, x, s.m, false);
    std::vector<float> row(static_cast<size_t>(w.cols));
    for (int64_t r = 0; r < s.rows; ++r) {
      decode_pass_row(t.tensor, pass, r, row.data());
      for (int64_t m = 0; m < s.m; ++m) {
        double sum = 0, bound = 1e-6;
        for (int64_t c = 0; c < w.cols; ++c) {
          const int64_t group = (r / 16 * up(w.cols, w.group) + c / w.group) * 16 + r % 16;
          const double scale = level_error > 0 ? f16_to_f32(w.scales.data()[group]) : 0;
          const double a = activation(x, m, c);
          const double weight = row[static_cast<size_t>(c)];
          sum += weight * a;
          bound += std::fabs(a) *
                   (scale * level_error + std::fabs(weight) * (1e-5 + packing_error(code)));
        }
        EXPECT_NEAR(y[static_cast<size_t>(m * (s.rows + 5) + r)], sum, bound)
            << describe(format, s, Isa::ref, 2);
      }
    }
  });
}

TEST(MatmulI8, ATokensResultDoesNotDependOnTheOthers) {
  const int64_t rows = 35, cols = 672, m = 33;
  uint64_t seed = 4000;
  for (const char* name :
       {"itq3_s", "tq2", "tq4", "tc3:h", "tc2:h:blocks", "tc3.5:h", "tc2.5:hq:L14", "tc4:hq"}) {
    const RandomTensor t(get_format(name), rows, cols, ++seed);
    const PanelMatrix w = pack_panels(t.tensor, 0);
    const auto x = make_activations(m, cols, kActivationGroup, 1, Values::random, seed);
    for (Isa isa : supported_isas()) {
      const auto together = run_i8(isa, w, x, m, false);
      for (int64_t first : {int64_t{1}, int64_t{2}, int64_t{7}, int64_t{8}, int64_t{16}}) {
        const auto some = run_i8(isa, w, x, first, false);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), together.begin()))
            << name << " " << isa_name(isa) << " m " << first;
      }
    }
  }
}

TEST(MatmulI8, ZeroActivationsGiveExactZeros) {
  const RandomTensor t(get_format("itq3_s"), 20, 288, 5);
  const PanelMatrix w = pack_panels(t.tensor, 0);
  const auto x = make_activations(9, 288, kActivationGroup, 1, Values::zero, 5);
  for (Isa isa : supported_isas()) {
    const auto y = run_i8(isa, w, x, 9, false);
    for (int64_t m = 0; m < 9; ++m) {
      for (int64_t r = 0; r < 20; ++r)
        EXPECT_EQ(y[static_cast<size_t>(m * 25 + r)], 0.0f) << isa_name(isa);
    }
  }
}

TEST(MatmulI8, ExtremeCodesAndActivationsDoNotOverflow) {
  const int64_t cols = 65536;
  std::vector<const Format*> formats;
  for (const char* name : {"tq4", "tq3", "tq2", "q8_0", "tq4:full"})
    formats.push_back(&get_format(name));
  for (const uint32_t type : {10u, 13u, 14u})  // Q2_K, Q5_K, Q6_K
    formats.push_back(gguf_code_format(type, GgufCodes::keep));
  for (const Format* tested : formats) {
    const Format& format = *tested;
    RandomTensor t(format, 17, cols, 6);
    // q8_0's most negative byte is the worst case for signed products of pairs.
    const std::byte top{static_cast<unsigned char>(format.code[0].bits == 8 ? 0x80 : 0xff)};
    std::fill(t.arrays[0].begin(), t.arrays[0].end(), top);
    const PanelMatrix w = pack_panels(t.tensor, 0);
    for (int64_t m : {1, 2, 14}) {
      const auto x = make_activations(m, cols, kActivationGroup, 1, Values::extreme, 6);
      const auto want = run_i8(Isa::ref, w, x, m, false);
      for (float v : want)
        EXPECT_TRUE(std::isfinite(v));
      for (Isa isa : supported_isas())
        EXPECT_TRUE(same_bits(run_i8(isa, w, x, m, false), want))
            << format.name << " " << isa_name(isa);
    }
  }
}

// Two rows of 32 columns with the scales 2 and 0.5 were checked by hand.
TEST(MatmulI8, HandMadeExample) {
  const Format& format = get_format("q8_0");
  RandomTensor t(format, 2, 32, 7);
  for (size_t i = 0; i < 64; ++i)
    t.arrays[0][i] = static_cast<std::byte>(i < 32 ? 1 : (i == 32 ? 0xfb : 0));  // ones; -5, zeros
  const uint16_t scales[2] = {f32_to_f16(2.0f), f32_to_f16(0.5f)};
  std::memcpy(t.arrays[1].data(), scales, 4);
  const PanelMatrix w = pack_panels(t.tensor, 0);
  ActivationsI8 x(1, 32, kPlainGroup, 1);
  for (size_t i = 0; i < 32; ++i)
    x.q[i] = static_cast<int8_t>(i + 1);
  x.scales[0] = 0.25f;
  x.sums[0] = 528;
  for (Isa isa : supported_isas()) {
    const auto y = run_i8(isa, w, x, 1, false);
    EXPECT_EQ(y[0], 264.0f);          // 528 * 2 * 0.25
    EXPECT_EQ(y[1], -5.0f * 0.125f);  // -5 * 1 * 0.5 * 0.25
  }
}

TEST(PackPanels, RefusesTrellisArraysThatAreTooSmall) {
  for (const char* name : {"tc3:h", "tc2:h:blocks", "tc2.5:hq"}) {
    RandomTensor t(get_format(name), 17, 320, 8);
    PassArrays& pass = t.tensor.pass[0];
    for (auto* array : {&pass.codes, &pass.scales, &pass.col_scales}) {
      if (array->empty()) continue;
      const auto whole = *array;
      *array = whole.first(whole.size() - 1);
      EXPECT_THROW(pack_panels(t.tensor, 0), Error) << name;
      *array = whole;
    }
    EXPECT_NO_THROW(pack_panels(t.tensor, 0));
  }
}

TEST(PackPanels, RefusesTrellisCodesWithoutKernels) {
  Format format = stored_format("tc3:L12");
  const auto expect_refused = [&] {
    const RandomTensor t(format, 16, 32, 8);
    EXPECT_THROW(pack_panels(t.tensor, 0), Error);
  };
  expect_refused();
  format = get_format("tc3:h");
  format.trellis.step_bits = 3;
  expect_refused();
  format = get_format("tc3:h");
  format.trellis.multiplier += 1u << 16;  // its halves differ
  expect_refused();
  format.trellis.multiplier = 0x80018001;  // its halves cannot be doubled
  expect_refused();
  format.trellis.multiplier = 0x7fff7fff;
  EXPECT_NO_THROW(pack_panels(RandomTensor(format, 16, 32, 8).tensor, 0));
  format = get_format("tc3.5:hq");
  std::vector<int8_t> table(format.trellis.table, format.trellis.table + 128);
  format.trellis.table = table.data();
  EXPECT_NO_THROW(pack_panels(RandomTensor(format, 16, 32, 8).tensor, 0));
  table[1] = static_cast<int8_t>(table[1] + 1);  // no longer minus its mirror image
  expect_refused();
}

TEST(PackPanels, RefusesArraysThatAreTooSmall) {
  RandomTensor t(get_format("tq3"), 4, 128, 8);
  for (auto* array : {&t.tensor.pass[0].codes, &t.tensor.pass[0].scales}) {
    const auto whole = *array;
    *array = whole.first(whole.size() - 1);
    EXPECT_THROW(pack_panels(t.tensor, 0), Error);
    *array = whole;
  }
  EXPECT_EQ(pack_panels(t.tensor, 0).codes.size(), size_t{16 * 128 * 3 / 32});
}

TEST(Ops, TablesAreCompleteForEveryIsa) {
  for (Isa isa : supported_isas()) {
    const Ops& o = ops(isa);
    EXPECT_TRUE(o.matmul_i8 && o.matmul_f32 && o.matmul_dense && o.rms_norm && o.silu_mul &&
                o.quantize_i8 && o.rope && o.to_f16 && o.attention);
  }
}

}  // namespace
}  // namespace walsh
