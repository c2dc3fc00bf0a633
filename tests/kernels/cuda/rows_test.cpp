#include "kernels/cuda/rows/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "codec/product/product.h"
#include "kernels/cuda/random_weights.h"
#include "kernels/cuda/rope_data.h"
#include "kernels/ops.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

class GpuRows : public testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
  }
};

TEST_F(GpuRows, RopeGivesTheBitsOfTheCpu) {
  for (const int dim : {8, 24, 64, 80, 128, 256, 320, 512}) {
    for (const bool norms : {false, true}) {
      expect_rope(dim, dim, 4, 2, 1, norms);
      expect_rope(dim, dim, 7, 1, 6, norms);
      expect_rope(dim, dim, 3, 3, 100, norms);
    }
  }
}

TEST_F(GpuRows, RopeOfAPartOfAHeadGivesTheBitsOfTheCpu) {
  const std::pair<int, int> parts[] = {{8, 2},    {8, 6},    {24, 10},   {64, 32},   {80, 32},
                                       {96, 72},  {128, 96}, {128, 32},  {128, 126}, {128, 64},
                                       {256, 64}, {256, 96}, {256, 130}, {512, 128}};
  for (const auto& [dim, rotated] : parts) {
    for (const bool norms : {false, true}) {
      expect_rope(dim, rotated, 4, 2, 1, norms);
      expect_rope(dim, rotated, 3, 3, 100, norms);
    }
  }
}

TEST_F(GpuRows, NormsComeBehindTheRotationToo) {
  for (const int dim : {64, 80, 512}) {
    for (const int64_t m : {1, 6, 40})
      expect_rope(dim, dim / 2, 4, 2, m, true, false, HeadValues::plain, true);
  }
}

TEST_F(GpuRows, RopeReadsQueriesBesideTheirGates) {
  for (const int dim : {64, 128, 256}) {
    for (const int64_t m : {1, 2, 16, 17, 100})
      expect_rope(dim, dim / 2, 6, 2, m, m % 2 == 0, true);
  }
}

TEST_F(GpuRows, WithoutARopeHeadsAreNormedAndStored) {
  for (const int dim : {8, 80, 128, 256}) {
    expect_rope(dim, 0, 4, 2, 1, true);
    expect_rope(dim, 0, 3, 3, 50, false);
  }
}

TEST_F(GpuRows, ValuesAreNormedOrMadeOfKeysOrOfAnotherLayer) {
  for (const int dim : {64, 256, 512}) {
    for (const auto kind : {HeadValues::normed, HeadValues::normed_keys, HeadValues::none}) {
      SCOPED_TRACE(static_cast<int>(kind));
      for (const int64_t m : {1, 6, 200})
        expect_rope(dim, dim, 8, 2, m, m != 6, false, kind);
    }
  }
}

TEST(GpuRope, KnowsHowManyPairsACallRotates) {
  const float table = 1;
  RopeCall call;
  call.rotated = 96;
  EXPECT_EQ(turned_pairs(call, 128), 0);  // without a table
  call.cos = &table;
  EXPECT_THROW(turned_pairs(call, 128), Error);  // half of one
  call.sin = &table;
  EXPECT_EQ(turned_pairs(call, 128), 48);
  EXPECT_EQ(turned_pairs(call, 96), 48);
  for (const int rotated : {-2, 7, 130}) {
    call.rotated = rotated;
    EXPECT_THROW(turned_pairs(call, 128), Error) << rotated;
  }
  call.rotated = 0;
  EXPECT_EQ(turned_pairs(call, 80), 40);
}

// Checks against the norm in ref, then the sum, in float32.
void expect_branch(int64_t m, int64_t width, bool normed, float scale, double size,
                   float factor = 0) {
  SCOPED_TRACE(testing::Message() << m << " x " << width << (normed ? " normed" : "") << " scale "
                                  << scale << " size " << size);
  Random random(static_cast<uint64_t>(width + m));
  auto branch = normal_values(m * width, random), x = normal_values(m * width, random);
  const auto gain = normal_values(width, random);
  for (float& v : branch)
    v = static_cast<float>(size * double{v});
  const Buffer dbranch = to_device(branch), dx = to_device(x), dgain = to_device(gain);
  BranchCall call;
  call.branch = dbranch.as<float>();
  call.gain = normed ? dgain.as<float>() : nullptr;
  call.eps = 1e-6f;
  call.scale = scale;
  const Buffer dfactor = to_device(std::vector<float>{factor});
  if (factor != 0) call.factor = dfactor.as<float>();
  call.x = dx.as<float>();
  call.m = m;
  call.width = width;
  add_branch(call, nullptr);
  synchronize(nullptr);
  for (int64_t t = 0; t < m; ++t) {
    float* row = branch.data() + t * width;
    if (normed) ops(Isa::ref).rms_norm(row, gain.data(), width, call.eps, row);
    for (int64_t i = 0; i < width; ++i)
      x[static_cast<size_t>(t * width + i)] += scale * row[i];
  }
  for (float& v : x)
    if (factor != 0) v *= factor;
  EXPECT_EQ(to_host<float>(dx), x);
}

TEST_F(GpuRows, AddsBranchesWithTheBitsOfTheCpu) {
  for (const int64_t width : {1, 7, 32, 511, 512, 513, 2304, 3584, 4099}) {
    for (const bool normed : {false, true}) {
      expect_branch(1, width, normed, 1, 1);
      expect_branch(3, width, normed, 0.22f, 1e-4);
      expect_branch(130, width, normed, 0.22f, normed ? 1e30 : 10);  // squares beyond float32
      expect_branch(5, width, normed, 1, 1, 0.7f);
    }
  }
}

TEST_F(GpuRows, NormsWholeRowsWithTheBitsOfTheCpu) {
  for (const int64_t width : {32, 513, 2048, 5120}) {
    for (const int64_t m : {1, 70}) {
      Random random(static_cast<uint64_t>(width + m));
      auto x = normal_values(m * width, random);
      const auto gain = normal_values(width, random);
      const Buffer dx = to_device(x), dgain = to_device(gain);
      norm_rows(dx.as<float>(), m, width, dgain.as<float>(), 1e-5f, nullptr);
      synchronize(nullptr);
      for (int64_t t = 0; t < m; ++t)
        ops(Isa::ref).rms_norm(x.data() + t * width, gain.data(), width, 1e-5f,
                               x.data() + t * width);
      EXPECT_EQ(to_host<float>(dx), x) << m << " x " << width;
    }
  }
}

TEST_F(GpuRows, TakesTheMeanOfRowsAwayAsTheCpu) {
  for (const int64_t width : {1, 32, 513, 5120}) {
    for (const int64_t m : {1, 70}) {
      Random random(static_cast<uint64_t>(width + m));
      auto x = normal_values(m * width, random);
      for (float& v : x)
        v += 100;
      const Buffer dx = to_device(x);
      center_rows(dx.as<float>(), m, width, nullptr);
      synchronize(nullptr);
      for (int64_t t = 0; t < m; ++t) {
        const auto row =
            std::span(x).subspan(static_cast<size_t>(t * width), static_cast<size_t>(width));
        const double sum = std::accumulate(row.begin(), row.end(), 0.0);
        for (float& v : row)
          v -= static_cast<float>(sum / static_cast<double>(width));
      }
      EXPECT_EQ(to_host<float>(dx), x) << m << " x " << width;
    }
  }
}

TEST_F(GpuRows, CopiesPartsOfRows) {
  Random random(1);
  for (const int64_t m : {1, 33}) {
    const auto x = normal_values(m * 700, random);
    const Buffer dx = to_device(x),
                 dout = to_device(std::vector<float>(static_cast<size_t>(m * 520)));
    copy_rows(dx.as<float>() + 100, 700, m, 520, dout.as<float>(), nullptr);
    synchronize(nullptr);
    std::vector<float> expected;
    for (int64_t t = 0; t < m; ++t) {
      const auto first = x.begin() + t * 700 + 100;
      expected.insert(expected.end(), first, first + 520);
    }
    EXPECT_EQ(to_host<float>(dout), expected);
  }
}

TEST_F(GpuRows, RefusesBranchesThatHaveNoNorm) {
  BranchCall call;
  call.m = 1;
  EXPECT_THROW(add_branch(call, nullptr), Error);
  const float gain = 1;
  call.width = 8;
  call.gain = &gain;
  EXPECT_THROW(add_branch(call, nullptr), Error);  // eps 0
}

TEST_F(GpuRows, CapsLogitsAsTheCpu) {
  for (const int64_t m : {1, 3}) {
    for (const int64_t vocab : {1, 33, 1024, 1025, 50257}) {
      for (const float cap : {0.0f, 0.5f, 30.0f}) {
        SCOPED_TRACE(testing::Message() << m << " x " << vocab << " cap " << cap);
        Random random(static_cast<uint64_t>(vocab));
        auto logits = normal_values(m * vocab, random);
        for (float& v : logits)
          v *= 40;
        const Buffer device = to_device(logits);
        cap_logits(device.as<float>(), m, vocab, 0.7f, cap, nullptr);
        synchronize(nullptr);
        for (float& v : logits)
          v *= 0.7f;
        const auto got = to_host<float>(device);
        if (cap == 0) {
          EXPECT_EQ(got, logits);
          continue;
        }
        ops(Isa::ref).soft_cap(logits.data(), m * vocab, cap);
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], logits[i], 1e-6 * cap) << i;
      }
    }
  }
}

TEST_F(GpuRows, CapsOfUnusualLogits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Buffer device =
      to_device(std::vector<float>{kInfinity, -kInfinity, 3e38f, std::nanf(""), -0.0f});
  cap_logits(device.as<float>(), 1, 5, 1, 30, nullptr);
  const auto got = to_host<float>(device);
  EXPECT_EQ(got[0], 30);
  EXPECT_EQ(got[1], -30);
  EXPECT_EQ(got[2], 30);
  EXPECT_TRUE(std::isnan(got[3]));
  EXPECT_EQ(got[4], 0);
  EXPECT_THROW(cap_logits(device.as<float>(), 1, 5, 1, -1, nullptr), Error);
}

// Embeds some tokens of a table, the first and the last row among them.
std::vector<float> embed_rows(const StoredTable& table, const std::vector<int32_t>& tokens,
                              int64_t ldx, float scale = 1) {
  const auto m = static_cast<int64_t>(tokens.size());
  const std::vector<float> untouched(static_cast<size_t>(m * ldx), -7.0f);
  const Buffer ids = to_device(tokens), x = to_device(untouched);
  embed(table, ids.as<const int32_t>(), m, x.as<float>(), ldx, scale, nullptr);
  synchronize(nullptr);
  return to_host<float>(x);
}

void expect_rows(const Tensor& tensor, const StoredTable& table) {
  const std::vector<int32_t> tokens{0, static_cast<int32_t>(tensor.rows - 1), 3, 3};
  const int64_t ldx = tensor.cols + 5;
  std::vector<float> expected(tokens.size() * static_cast<size_t>(ldx), -7.0f);
  for (size_t t = 0; t < tokens.size(); ++t)
    decode_rows(tensor, tokens[t], tokens[t] + 1, expected.data() + t * static_cast<size_t>(ldx));
  EXPECT_EQ(embed_rows(table, tokens, ldx), expected)
      << tensor.format->name << " with " << tensor.cols << " columns";
  constexpr float kScale = 47.95f;
  for (size_t i = 0; i < expected.size(); ++i)
    if (static_cast<int64_t>(i) % ldx < tensor.cols) expected[i] *= kScale;
  EXPECT_EQ(embed_rows(table, tokens, ldx, kScale), expected)
      << tensor.format->name << " with " << tensor.cols << " columns, scaled";
}

TEST_F(GpuRows, EmbedDecodesEveryFormatWithTheBitsOfTheCpu) {
  for (const Format& format : all_formats()) {
    if (!test::gpu_code(format)) continue;
    for (const int64_t cols : {32, 96, 896, 1000, 1376, 2080, 4096}) {
      test::RandomWeights random(format, 9, cols, static_cast<uint64_t>(cols));
      for (const int block : {32, 256, 1024, 0}) {
        Tensor& tensor = random.tensor;
        StoredTable table;
        table.format = &format;
        table.rows = tensor.rows;
        table.cols = cols;
        std::vector<Buffer> arrays;
        const auto keep = [&](std::span<const std::byte> bytes) -> const void* {
          if (bytes.empty()) return nullptr;
          arrays.push_back(to_device(std::vector<std::byte>(bytes.begin(), bytes.end())));
          return arrays.back().as<const void>();
        };
        for (int pass = 0; pass < format.passes; ++pass) {
          Rotation& rotation = tensor.rotation[pass];
          rotation.kind = block == 0 ? RotationKind::none : RotationKind::hadamard;
          rotation.block = block == 0 ? 128 : block;
          rotation.signs = pass == 0 || block != 256;
          const PassArrays& stored = tensor.pass[pass];
          table.pass[pass] = {keep(stored.codes),
                              keep(stored.scales),
                              keep(stored.offsets),
                              keep(stored.sub_scales),
                              nullptr,
                              keep(stored.col_scales),
                              rotation};
          if (format.kind == CodeKind::product) {
            table.pass[pass].codebook =
                keep({reinterpret_cast<const std::byte*>(product_codebook(tensor)),
                      size_t{kCodebookBytes}});
          }
        }
        expect_rows(tensor, table);
      }
    }
  }
}

TEST_F(GpuRows, EmbedConvertsPlainTables) {
  Random random(5);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const int64_t cols : {1, 37, 1024, 3000}) {
      Tensor tensor;
      tensor.format = &dense_format(type);
      tensor.rows = 6;
      tensor.cols = cols;
      std::vector<std::byte> data;
      for (int64_t i = 0; i < 6 * cols; ++i) {
        const auto v = static_cast<float>(random.normal());
        const uint16_t h = type == DType::f16 ? f32_to_f16(v) : f32_to_bf16(v);
        const auto* bytes = type == DType::f32 ? reinterpret_cast<const std::byte*>(&v)
                                               : reinterpret_cast<const std::byte*>(&h);
        data.insert(data.end(), bytes, bytes + (type == DType::f32 ? 4 : 2));
      }
      tensor.data = data;
      const Buffer stored = to_device(data);
      StoredTable table;
      table.format = tensor.format;
      table.rows = 6;
      table.cols = cols;
      table.data = stored.as<const void>();
      expect_rows(tensor, table);
    }
  }
}

TEST_F(GpuRows, EmbedMarksUnknownTokens) {
  const Buffer stored = to_device(std::vector<float>{1, 2, 3, 4});
  StoredTable table;
  table.format = &dense_format(DType::f32);
  table.rows = table.cols = 2;
  table.data = stored.as<const void>();
  const auto x = embed_rows(table, {-1, 1, 2}, 2);
  EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[1]) && std::isnan(x[4]) && std::isnan(x[5]));
  EXPECT_EQ(x[2], 3.0f);
  EXPECT_EQ(x[3], 4.0f);
}

TEST_F(GpuRows, EmbedRefusesRotationsOfTheCpu) {
  StoredTable table;
  table.format = &get_format("tq3");
  table.rows = table.cols = 32;
  table.pass[0].rotation.kind = RotationKind::qr;
  EXPECT_THROW(embed(table, nullptr, 1, nullptr, 32, 1, nullptr), Error);
}

}  // namespace
}  // namespace walsh::cuda
