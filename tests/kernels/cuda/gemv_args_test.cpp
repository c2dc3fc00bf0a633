#include "kernels/cuda/gemv/gemv_args.h"
#include "kernels/cuda/experts/expert_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/half.h"
#include "codec/format.h"
#include "codec/kernels.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using detail::PassMatmul;

Matrix matrix(const char* format, int64_t cols) {
  Matrix m;
  m.code = matrix_code(get_format(format), 0);
  m.rows = 16;
  m.cols = cols;
  m.group = 128;
  return m;
}

TEST(GemvLaunches, HoldNeighboursOfOneKindAndInput) {
  const Matrix a = matrix("tq3", 512), b = matrix("tq4", 512);
  Activations x, other;
  std::vector<Matmul> products(7);
  const Matrix* const first[] = {&a, &a, &a, &a, &b, &a, &a};
  for (size_t i = 0; i < products.size(); ++i) {
    products[i].pass[0] = first[i];
    products[i].input[0] = i == 6 ? &other : &x;
  }
  products[1].pass[1] = products[5].pass[1] = &b;
  products[1].input[1] = products[5].input[1] = &x;
  std::vector<size_t> sizes;
  const auto all = [&](std::span<const PassMatmul> group) {
    sizes.push_back(group.size());
    return true;
  };
  EXPECT_TRUE(detail::for_launches(products, 0, all));
  EXPECT_EQ(sizes, (std::vector<size_t>{3, 1, 1, 1, 1}));
  sizes.clear();
  EXPECT_TRUE(detail::for_launches(products, 1, all));
  EXPECT_EQ(sizes, (std::vector<size_t>{2}));
  sizes.clear();
  const auto none = [&](std::span<const PassMatmul> group) {
    sizes.push_back(group.size());
    return false;
  };
  EXPECT_FALSE(detail::for_launches(products, 0, none));
  EXPECT_EQ(sizes, (std::vector<size_t>{3}));
}

TEST(GemvLaunches, PhasesHoldNeighboursOfOneInputWhateverTheirCodes) {
  const Matrix a = matrix("tq3", 512), b = matrix("tq4", 512), c = matrix("tq3", 768);
  Activations x, other;
  std::vector<Matmul> products(6);
  const Matrix* const first[] = {&a, &b, &a, &b, &a, &c};
  for (size_t i = 0; i < products.size(); ++i) {
    products[i].pass[0] = first[i];
    products[i].input[0] = i == 4 ? &other : &x;
  }
  std::vector<size_t> sizes;
  EXPECT_TRUE(detail::for_inputs(products, 0, [&](std::span<const PassMatmul> group) {
    sizes.push_back(group.size());
    return true;
  }));
  EXPECT_EQ(sizes, (std::vector<size_t>{3, 1, 1, 1}));
}

// The decoders' tables equal the format's levels.
TEST(MatrixCode, HasTheLevelsOfEveryScalarFormat) {
  for (const Format& format : all_formats()) {
    for (int pass = 0; pass < format.passes; ++pass) {
      if (format.kind == CodeKind::product) continue;
      if (format.kind == CodeKind::trellis && has_kernel(format, Kernel::gpu_products)) {
        const MatrixCode m = matrix_code(format, pass);
        EXPECT_EQ(code_words(m.decoder), 2 * format.trellis.step_bits) << format.name;
        EXPECT_EQ(m.levels.words[0], format.trellis.multiplier) << format.name;
        continue;
      }
      if (format.kind == CodeKind::trellis) {
        EXPECT_THROW(matrix_code(format, pass), Error) << format.name;
        continue;
      }
      const ScalarCode& code = format.code[pass];
      const MatrixCode m = matrix_code(format, pass);
      EXPECT_EQ(m.vectors(), code.bits) << format.name;
      EXPECT_EQ(m.unit, code.unit) << format.name;
      for (int c = 0; code.bits < 8 && c < 1 << code.bits; ++c) {
        const auto byte = [&](const LevelTable& t) {
          return t.words[c / 4] >> (8 * (c % 4)) & 255;
        };
        EXPECT_EQ(static_cast<int8_t>(byte(m.levels)), code.levels_i8[c]) << format.name;
        EXPECT_EQ(byte(m.high) << 8 | byte(m.low), f32_to_f16(code.levels[c])) << format.name;
      }
    }
  }
}

// Kernels take codes of four bits below 8 as negative levels, and negate them.
TEST(GemvLaunches, RefuseLevelsThatAreNotInOrder) {
  ScalarCode code = get_format("tq4").code[0];
  int8_t levels[16];
  std::copy_n(code.levels_i8, 16, levels);
  code.levels_i8 = levels;
  EXPECT_NO_THROW(matrix_code(code));
  levels[0] = -128;  // it has no negative
  EXPECT_THROW(matrix_code(code), Error);
  levels[0] = -127;
  std::reverse(levels, levels + 16);
  EXPECT_THROW(matrix_code(code), Error);
}

// Checks that an expert has as many slots as other products have vectors.
void expect_no_fewer_slots(int architecture, int64_t shared, const GemvKind& of, GemvArgs args) {
  GemvKind many = of;
  many.experts = true;
  const int most = detail::plan_slices(of, shared, architecture, args);
  EXPECT_EQ(detail::plan_slices(many, shared, architecture, args, kVectorSlots),
            std::min(most, kVectorSlots));
}

void expect_fit(int architecture, int64_t shared, const GemvKind& of, GemvArgs args) {
  const int most = detail::plan_slices(of, shared, architecture, args,
                                       of.experts ? kVectorSlots : static_cast<int>(kMaxVectors));
  EXPECT_GE(args.slice_k_tiles, 1);
  EXPECT_LE(args.slice_k_tiles, args.k_tiles);
  GemvKind kind = of;
  for (args.m = 1; args.m <= most; ++args.m) {
    args.vectors = args.m * args.planes;
    kind.tiles8 = tiles_of_8(kind.decoder, kind.flush, args.vectors);
    EXPECT_LE(detail::gemv_bytes(kind, args, architecture),
              shared - 1024 - table_bytes(kind.decoder))
        << "code for " << architecture << " decoder " << static_cast<int>(kind.decoder) << " flush "
        << kind.flush << " group " << args.x_group << " vectors " << args.vectors << " k-tiles "
        << args.k_tiles;
  }
}

// Rings are as deep as few vectors allow: every number of them has to fit. Code for 8.0 also runs
// on 8.6, which has less memory.
TEST(GemvLaunches, FitIntoSharedMemoryForEveryNumberOfVectors) {
  const std::pair<int, int64_t> devices[] = {
      {80, 166912}, {80, 101376}, {86, 101376}, {90, 232448}, {120, 101376}};
  const std::pair<int, int> groups[] = {{32, 32}, {32, 128}, {128, 128}};  // flush, inputs
  for (const auto& [architecture, shared] : devices) {
    for (const DecoderRow& row : kDecoders) {
      const DecoderKind decoder = row.kind;
      for (const auto& [flush, x_group] : groups) {
        if (!has_flush(decoder, flush)) continue;
        for (const int planes : {1, 2}) {
          for (const int k_tiles : {1, 5, 16, 32, 43, 56, 112, 500}) {
            GemvArgs args;
            args.k_tiles = k_tiles;
            args.x_group = x_group;
            args.planes = planes;
            expect_fit(architecture, shared, {decoder, flush}, args);
            expect_fit(architecture, shared, {decoder, flush, 0, true}, args);
            expect_no_fewer_slots(architecture, shared, {decoder, flush}, args);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace walsh::cuda
