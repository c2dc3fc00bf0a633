// Tests the scale search: quality, semantics, independence of the instruction set.
#include "codec/scalar/encoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu.h"
#include "base/half.h"
#include "quantize/encoded.h"

namespace walsh {
namespace {

using testing_support::decoded;
using testing_support::encode;
using testing_support::Encoded;
using testing_support::halves;
using testing_support::Matrix;
using testing_support::normal_matrix;
using testing_support::stored_bytes;

class EncoderOnEachIsa : public testing::Test {
 protected:
  ~EncoderOnEachIsa() override { force_isa(""); }
};

TEST_F(EncoderOnEachIsa, reachesEveryBound) {
  const Matrix m = normal_matrix(512, 1024);
  for (Isa isa : supported_isas()) {
    force_isa(isa_name(isa));
    for (const Format& format : all_formats()) {
      if (format.kind != CodeKind::scalar || format.bound == 0) continue;
      EXPECT_LE(encode(format, m).nmse(), format.bound * 1.005)
          << format.name << ' ' << isa_name(isa);
    }
  }
}

TEST_F(EncoderOnEachIsa, bitsDoNotDependOnTheIsa) {
  for (int64_t cols : {32, 33, 96, 288, 896}) {
    Matrix m = normal_matrix(6, cols, static_cast<uint64_t>(cols));
    for (int64_t i = 0; i < cols; ++i) {
      const size_t at = static_cast<size_t>(i);
      m.values[at] *= 1e-30f;
      m.values[at + static_cast<size_t>(cols)] *= 1e30f;
      m.values[at + static_cast<size_t>(2 * cols)] = 0;
    }
    for (const Format& format : all_formats()) {
      if (format.kind != CodeKind::scalar) continue;
      for (Effort effort : {Effort::full, Effort::fast}) {
        for (ScaleRule rule : {ScaleRule::search, ScaleRule::shape_gain}) {
          force_isa("ref");
          const std::vector<std::byte> expected =
              stored_bytes(encode(format, m, {effort, rule}).tensor);
          for (Isa isa : supported_isas()) {
            force_isa(isa_name(isa));
            EXPECT_EQ(stored_bytes(encode(format, m, {effort, rule}).tensor), expected)
                << format.name << ' ' << cols << ' ' << isa_name(isa);
          }
        }
      }
    }
  }
}

// Searches as docs/formats/README.md words it, in double precision and without any shared code.
double plain_search_error(const float* x, int64_t n, std::vector<double> levels, double start,
                          bool full) {
  std::sort(levels.begin(), levels.end());
  const auto nearest = [&](double v, double d) {
    size_t best = 0;
    while (best + 1 < levels.size() && v > d * (levels[best] + levels[best + 1]) / 2)
      ++best;
    return levels[best];
  };
  double sigma = 0;
  for (int64_t i = 0; i < n; ++i)
    sigma += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  sigma = std::sqrt(sigma / static_cast<double>(n));
  double least = INFINITY;
  for (int s = 0; s < (full ? 10 : 1); ++s) {
    double d = sigma * start * (s == 0 ? 1.0 : 0.7 + 0.075 * (s - 1));
    for (int round = 0; round < 6; ++round) {
      double xq = 0, qq = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double q = nearest(x[i], d);
        xq += q * static_cast<double>(x[i]);
        qq += q * q;
      }
      d = xq / qq;
    }
    d = f16_to_f32(f32_to_f16(static_cast<float>(d)));
    double error = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double e = static_cast<double>(x[i]) - d * nearest(x[i], d);
      error += e * e;
    }
    least = std::min(least, error);
  }
  return least;
}

TEST(Encoder, findsTheErrorOfThePlainSearchInEveryGroup) {
  const Matrix m = normal_matrix(40, 128, 9);
  for (const char* name : {"tq2", "tq3", "tq4"}) {
    const ScalarCode& code = get_format(name).code[0];
    const std::vector<double> levels(code.levels, code.levels + (1 << code.bits));
    for (Effort effort : {Effort::full, Effort::fast}) {
      for (int64_t r = 0; r < m.rows; ++r) {
        std::vector<std::byte> packed(static_cast<size_t>(code_bytes_per_row(code, 128)));
        uint16_t scale = 0;
        encode_rows(code, {effort, ScaleRule::search}, m.row(r), 1, 128,
                    {packed.data(), &scale, nullptr, nullptr});
        std::vector<uint8_t> codes(128);
        unpack_codes(code, packed.data(), 128, codes.data());
        double error = 0;
        for (size_t i = 0; i < 128; ++i) {
          const float e = m.row(r)[i] - f16_to_f32(scale) * code.levels[codes[i]];
          error += static_cast<double>(e) * static_cast<double>(e);
        }
        const double expected =
            plain_search_error(m.row(r), 128, levels, 1, effort == Effort::full);
        EXPECT_NEAR(error / expected, 1, effort == Effort::full ? 0.003 : 0.03) << name << r;
      }
    }
  }
}

TEST(Encoder, fullEffortIsNeverWorseThanTheFirstStart) {
  const Matrix m = normal_matrix(64, 512, 5);
  for (const Format& format : all_formats()) {
    if (format.kind != CodeKind::scalar) continue;
    const double full = encode(format, m, {Effort::full, ScaleRule::search}).nmse();
    const double first = encode(format, m, {Effort::fast, ScaleRule::search}).nmse();
    EXPECT_LE(full, first * 1.000001) << format.name;
  }
}

TEST(Encoder, shapeGainKeepsTheNormOfEachGroup) {
  const Matrix m = normal_matrix(8, 128, 3);
  const Format& format = get_format("tq3");
  const Encoded e = encode(format, m, {Effort::full, ScaleRule::shape_gain});
  const std::vector<float> back = decoded(e.tensor);
  for (int64_t r = 0; r < m.rows; ++r) {
    double before = 0, after = 0;
    for (int64_t i = 0; i < 128; ++i) {
      before += std::pow(static_cast<double>(m.row(r)[i]), 2);
      after += std::pow(static_cast<double>(back[static_cast<size_t>(r * 128 + i)]), 2);
    }
    EXPECT_NEAR(after / before, 1, 2e-3);  // twice the rounding of an fp16 scale
  }
  EXPECT_NEAR(
      encode(format, normal_matrix(256, 1024), {Effort::full, ScaleRule::shape_gain}).nmse(),
      0.0337, 0.0004);
}

// docs/formats/itq3_s.md says: ||w' - w||^2 <= sum of max(h, |x - m| - 5h)^2 with h = d/4.
TEST(Encoder, strictKeepsItsBoundOnEveryBlockAndElement) {
  const ScalarCode& code = get_format("itq3_s:strict").code[0];
  Matrix m = normal_matrix(200, 256, 8);
  Random random(4);
  for (size_t i = 0; i < m.values.size(); i += 7)
    m.values[i] *= static_cast<float>(std::exp(2 * random.normal()));
  for (int64_t r = 0; r < m.rows; ++r) {
    std::vector<std::byte> packed(96);
    uint16_t scale = 0, offset = 0;
    encode_rows(code, {}, m.row(r), 1, 256, {packed.data(), &scale, &offset, nullptr});
    std::vector<uint8_t> codes(256);
    unpack_codes(code, packed.data(), 256, codes.data());
    const double d = f16_to_f32(scale), z = f16_to_f32(offset), h = d / 4;
    for (size_t i = 0; i < 256; ++i) {
      ASSERT_NE(codes[i] & 3, 3) << "reserved ternary digit";
      const double x = m.row(r)[i];
      const double error = std::abs(d * static_cast<double>(code.levels[codes[i]]) + z - x);
      const double bound = std::max(h, std::abs(x - z) - 5 * h);
      ASSERT_LE(error, bound * (1 + 1e-6)) << r << ' ' << i;
    }
  }
}

TEST(Encoder, literalTernaryUsesTheRmsAndNoOffset) {
  const ScalarCode& code = get_format("itq3_s:ternary-paper").code[0];
  const Matrix m = normal_matrix(1, 256, 2);
  std::vector<std::byte> packed(96);
  uint16_t scale = 0, offset = 1;
  encode_rows(code, {}, m.row(0), 1, 256, {packed.data(), &scale, &offset, nullptr});
  double squares = 0;
  for (float v : m.values)
    squares += static_cast<double>(v) * static_cast<double>(v);
  EXPECT_EQ(scale, f32_to_f16(static_cast<float>(std::sqrt(squares / 256))));
  EXPECT_EQ(offset, 0);
  std::vector<uint8_t> codes(256);
  unpack_codes(code, packed.data(), 256, codes.data());
  for (size_t i = 0; i < 256; ++i) {
    const float threshold = 0.399f * f16_to_f32(scale);
    const int expected = m.values[i] > threshold ? 2 : m.values[i] > -threshold ? 1 : 0;
    EXPECT_EQ(codes[i], expected) << m.values[i];
  }
}

TEST(Encoder, aTieGoesToTheLowerLevel) {
  // The scale is 1 by the rms rule: half the elements sit exactly on +-0.5, the rest make the rms
  // 1.
  ScalarCode code = get_format("itq3_s:ternary-paper").code[0];
  static constexpr float kLevels[8] = {-1, 0, 1, 1, -1, 0, 1, 1};
  code.levels = kLevels;  // thresholds +-0.5
  code.group = 32;
  std::vector<float> x(32);
  for (size_t i = 0; i < 16; ++i)
    x[i] = i % 2 == 0 ? 0.5f : -0.5f;
  for (size_t i = 16; i < 32; ++i)
    x[i] = std::sqrt(1.75f);
  std::vector<std::byte> packed(12);
  uint16_t scale = 0, offset = 0;
  encode_rows(code, {}, x.data(), 1, 32, {packed.data(), &scale, &offset, nullptr});
  ASSERT_EQ(f16_to_f32(scale), 1.0f);
  std::vector<uint8_t> codes(32);
  unpack_codes(code, packed.data(), 32, codes.data());
  for (size_t i = 0; i < 16; ++i)
    EXPECT_EQ(codes[i], i % 2 == 0 ? 1 : 0) << "0.5 rounds down to 0, -0.5 to -1";
}

TEST(Encoder, subScaledScalesAreExactHalves) {
  const Format& format = get_format("itq3_s8");
  for (float factor : {1e-3f, 1.0f, 700.0f}) {
    Matrix m = normal_matrix(4, 512, 6);
    for (float& v : m.values)
      v *= factor;
    const Encoded e = encode(format, m);
    EXPECT_NEAR(e.nmse(), 0.0255, 0.002) << factor;
    const std::vector<uint16_t> d = halves(e.tensor.pass[0].scales);
    const std::vector<uint16_t> sub = halves(e.tensor.pass[0].sub_scales);
    for (size_t i = 0; i < sub.size(); ++i) {
      int exponent = 0;
      EXPECT_EQ(std::frexp(f16_to_f32(d[i / 8]), &exponent), 0.5f) << "d is a power of two";
      const float scale = f16_to_f32(d[i / 8]) * f16_to_f32(sub[i]);
      EXPECT_EQ(f16_to_f32(f32_to_f16(scale)), scale);
      EXPECT_GT(f16_to_f32(sub[i]), 0.2f);
      EXPECT_LT(f16_to_f32(sub[i]), 2.0f);
    }
  }
}

// q8_0 and q4_0 are written out from ggml's rules.
TEST(Encoder, ggufBaselinesFollowGgml) {
  const Matrix m = normal_matrix(16, 64, 12);
  const Encoded q8 = encode(get_format("q8_0"), m), q4 = encode(get_format("q4_0"), m);
  const std::vector<uint16_t> d8 = halves(q8.tensor.pass[0].scales);
  const std::vector<uint16_t> d4 = halves(q4.tensor.pass[0].scales);
  for (int64_t block = 0; block < 32; ++block) {
    const float* x = m.values.data() + 32 * block;
    float largest = 0;
    for (int i = 0; i < 32; ++i) {
      if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
    }
    const float scale8 = std::fabs(largest) / 127.0f, scale4 = largest / -8.0f;
    EXPECT_EQ(d8[static_cast<size_t>(block)], f32_to_f16(scale8));
    EXPECT_EQ(d4[static_cast<size_t>(block)], f32_to_f16(scale4));
    uint8_t codes[32];
    unpack_codes(q4.tensor.format->code[0], q4.tensor.pass[0].codes.data() + 16 * block, 32, codes);
    for (int i = 0; i < 32; ++i) {
      const auto q =
          static_cast<int8_t>(q8.tensor.pass[0].codes[static_cast<size_t>(32 * block + i)]);
      EXPECT_EQ(q, static_cast<int8_t>(std::round(x[i] * (1.0f / scale8))));
      EXPECT_EQ(codes[i], std::min(15, static_cast<int>(x[i] * (1.0f / scale4) + 8.5f)));
    }
  }
}

}  // namespace
}  // namespace walsh
