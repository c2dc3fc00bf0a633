// Tests the GPU encoder against the CPU's: the same bytes, errors and refusals. Its arithmetic is
// checked on the host as well (host_team.h), so that most of it is tested without a GPU.
#include "codec/encode/cuda/encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/half.h"
#include "quantize/cuda/host_team.h"
#include "quantize/encoded.h"
#include "quantize/pipeline/compressor.h"
#include "quantize/source/balance.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing_support::Matrix;
using testing_support::normal_matrix;
using testing_support::stored_bytes;

struct Dense {
  Tensor tensor;
  std::vector<std::byte> bytes;
};

// Returns the values rounded to `type`. They are on the heap because the tensor points into them.
std::unique_ptr<Dense> dense(const Matrix& m, DType type) {
  auto d = std::make_unique<Dense>();
  for (float v : m.values) {
    const uint16_t half = type == DType::f16 ? f32_to_f16(v) : f32_to_bf16(v);
    const auto* p = type == DType::f32 ? reinterpret_cast<const std::byte*>(&v)
                                       : reinterpret_cast<const std::byte*>(&half);
    d->bytes.insert(d->bytes.end(), p, p + dtype_size(type));
  }
  d->tensor.format = &dense_format(type);
  d->tensor.rows = m.rows;
  d->tensor.cols = m.cols;
  d->tensor.data = d->bytes;
  return d;
}

struct Case {
  const Format* format;
  Rotation rotation[2];
  EncodeOptions options;
};

Case make_case(const Format& format, Effort effort = Effort::full) {
  Case c{&format, {}, {effort, ScaleRule::search}};
  for (int pass = 0; pass < 2; ++pass) {
    c.rotation[pass].kind =
        format.rotation_block == 0 ? RotationKind::none : RotationKind::hadamard;
    if (format.rotation_block != 0) c.rotation[pass].block = format.rotation_block;
    c.rotation[pass].seed = rotation_seed(42, 3u, pass);
  }
  return c;
}

struct Result {
  std::vector<std::byte> bytes;
  double error = 0, norm = 0;
  std::string refusal;

  bool operator==(const Result& o) const { return bytes == o.bytes && refusal == o.refusal; }
};

Result encode_on_cpu(const Case& c, const Tensor& source, std::span<const float> scales) {
  ThreadPool pool(1);
  Result r;
  try {
    const Tensor coded = encode_tensor(
        *c.format, c.rotation, c.options, source.rows, source.cols,
        [&](int64_t begin, int64_t end, float* out) {
          read_scaled_rows(source, scales, begin, end, out);
        },
        pool, &r.error, &r.norm);
    r.bytes = stored_bytes(coded);
  } catch (const Error& e) {
    r.refusal = e.reason();
  }
  return r;
}

// Runs the kernels' code on the host, a pass over all rows at a time.
Result emulate(const Case& c, const Tensor& source, std::span<const float> scales) {
  using namespace cuda::encoding;
  const auto specs = array_specs(*c.format, source.rows, source.cols);
  std::vector<std::vector<uint32_t>> arrays;
  for (const ArraySpec& spec : specs)
    arrays.emplace_back((spec.bytes + 3) / 4, 0xdeadbeefu);
  const auto elements = static_cast<size_t>(source.rows * source.cols);
  struct alignas(16) Lines {
    float v[8];
  };
  std::vector<Lines> values(elements / 8 + 1), residual(elements / 8 + 1);
  std::memcpy(values.data(), source.data.data(), source.data.size());
  std::vector<Lines> padded_scales(static_cast<size_t>(source.cols) / 8 + 1);
  std::memcpy(padded_scales.data(), scales.data(), scales.size_bytes());

  Source in{values.data(), scales.empty() ? nullptr : padded_scales.front().v, SourceType::f32,
            source.cols % 8 == 0, source.cols};
  if (source.format->dtype != DType::f32) {
    in.type = source.format->dtype == DType::f16 ? SourceType::f16 : SourceType::bf16;
  }
  uint64_t refusal = ~uint64_t{0};
  Result r;
  size_t next = 0;
  for (int pass = 0; pass < c.format->passes; ++pass) {
    const auto plan = plan_pass(*c.format, pass, c.rotation[pass], c.options, source.cols);
    EXPECT_TRUE(plan.has_value()) << c.format->name;
    if (!plan) return r;
    const ScalarCode& code = c.format->code[pass];
    std::vector<Lines> factors(plan->factors.size() / 8 + 1);
    std::memcpy(factors.data(), plan->factors.data(), plan->factors.size() * sizeof(float));
    PassArgs args = plan->args;
    args.source = in;
    args.refusals = {&refusal, 0};
    args.factors = factors.front().v;
    args.codes = arrays[next++].data();
    args.scales = reinterpret_cast<uint16_t*>(arrays[next++].data());
    if (code.has_offset) args.offsets = reinterpret_cast<uint16_t*>(arrays[next++].data());
    if (code.sub_group) args.sub_scales = reinterpret_cast<uint16_t*>(arrays[next++].data());
    const auto blocks = static_cast<size_t>(source.rows * args.spans);
    std::vector<double> norms(blocks), errors(blocks);
    args.norms = pass == 0 ? norms.data() : nullptr;
    args.errors = errors.data();
    args.residual = pass + 1 < c.format->passes ? residual.front().v : nullptr;
    run_pass(*plan, args, source.rows);
    r.error = 0;
    for (size_t i = 0; i < blocks; ++i) {
      r.error += errors[i];
      r.norm += norms[i];
    }
    in.values = residual.data();
    in.type = SourceType::f32;
    in.column_scales = nullptr;
  }
  if (refusal != ~uint64_t{0}) r.refusal = "refused";
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto* p = reinterpret_cast<const std::byte*>(arrays[i].data());
    r.bytes.insert(r.bytes.end(), p, p + specs[i].bytes);
  }
  return r;
}

Result encode_on_gpu(cuda::GpuEncoder& encoder, const Case& c, const Tensor& source,
                     std::span<const float> scales) {
  Result r;
  try {
    r.bytes = stored_bytes(encoder.encode_to_host(*c.format, c.rotation, c.options, source, scales,
                                                  &r.error, &r.norm));
  } catch (const Error& e) {
    r.refusal = e.reason();
  }
  return r;
}

using Encode = std::function<Result(const Case&, const Tensor&, std::span<const float>)>;

// Says where two results differ, for messages.
std::string difference(const Result& a, const Result& b) {
  if (a.refusal != b.refusal) return "refusals '" + a.refusal + "' and '" + b.refusal + "'";
  if (a.bytes.size() != b.bytes.size()) return "sizes";
  size_t count = 0, first = a.bytes.size();
  for (size_t i = a.bytes.size(); i-- > 0;) {
    if (a.bytes[i] == b.bytes[i]) continue;
    first = i;
    ++count;
  }
  return std::to_string(count) + " of " + std::to_string(a.bytes.size()) + " bytes, first " +
         std::to_string(first);
}

void expect_same(const Encode& encode, const Case& c, const Tensor& source,
                 std::span<const float> scales, const std::string& what) {
  const Result expected = encode_on_cpu(c, source, scales);
  const Result got = encode(c, source, scales);
  EXPECT_TRUE(got == expected) << c.format->name << ' ' << what << " [" << source.rows << ", "
                               << source.cols << "] " << dtype_name(source.format->dtype)
                               << (c.options.effort == Effort::fast ? " fast: " : ": ")
                               << difference(got, expected);
  EXPECT_NEAR(got.error, expected.error, 1e-12 * expected.error) << c.format->name << ' ' << what;
  EXPECT_NEAR(got.norm, expected.norm, 1e-12 * expected.norm) << c.format->name << ' ' << what;
}

std::vector<float> some_scales(int64_t cols) {
  Random random(99);
  std::vector<float> scales(static_cast<size_t>(cols));
  for (float& s : scales)
    s = static_cast<float>(std::exp(random.normal()));
  return scales;
}

std::vector<const Format*> coded_formats() {
  std::vector<const Format*> formats;
  for (const Format& format : all_formats()) {
    if (format.kind == CodeKind::scalar) formats.push_back(&format);
  }
  return formats;
}

void check_shapes(const Encode& encode) {
  const int64_t shapes[][2] = {{1, 1},   {2, 31},   {3, 32},   {2, 100},  {1, 128},
                               {2, 256}, {3, 896},  {2, 1376}, {2, 1024}, {1, 2720},
                               {2, 480}, {5, 1152}, {1, 4096}, {1, 1037}};
  for (const Format* format : coded_formats()) {
    for (const auto& shape : shapes) {
      const Matrix m = normal_matrix(shape[0], shape[1], static_cast<uint64_t>(shape[1]));
      for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
        const auto source = dense(m, type);
        const Effort effort = type == DType::f16 ? Effort::fast : Effort::full;
        const auto scales = type == DType::f32 ? std::vector<float>{} : some_scales(shape[1]);
        expect_same(encode, make_case(*format, effort), source->tensor, scales, "normal");
      }
    }
  }
}

// Makes rows of all kinds that are not normal.
Matrix odd_matrix(int64_t cols) {
  const float factors[] = {1e-45f, 1e-42f, 1e-40f, 1e-38f, 1e-30f, 2e-5f, 1e-7f,
                           0.01f,  300.0f, 7e4f,   3e5f,   1e8f,   1e30f, 1e36f};
  constexpr int64_t kOthers = 14;
  const auto scaled = static_cast<int64_t>(std::size(factors));
  Matrix m = normal_matrix(scaled + kOthers, cols, 5);
  Random random(17);
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      float& v = m.values[static_cast<size_t>(r * cols + c)];
      const float uniform = static_cast<float>(random.uniform());
      if (r < scaled) {
        v *= factors[r];
        continue;
      }
      switch (r - scaled) {
        case 0:
          v = 0;
          break;
        case 1:
          v = c / 128 % 2 == 0 ? 0.0f : v;  // zero groups
          break;
        case 2:
          v += 10;
          break;
        case 3:
          v = 1;
          break;
        case 4:
          v = std::round(4 * v) / 4;  // many ties
          break;
        case 5:
          v = v > 0 ? 1.0f : -1.0f;
          break;
        case 6:
          v = c == cols / 2 ? 100.0f : 0.0f;
          break;
        case 7:
          v *= std::exp(8 * (uniform - 0.5f));
          break;
        case 8:
          v = c % 32 == 5 ? -3.0f : uniform;
          break;
        case 9:
          v *= std::ldexp(1.0f, static_cast<int>(c / 32 % 40) - 20);
          break;
        case 10:
          v = std::ldexp(v, 120 - 5 * static_cast<int>(c / 32));
          break;
        case 11:
          v = std::ldexp(v, -150 + 10 * static_cast<int>(c / 32));
          break;
        case 12:
          v = -0.0f;
          break;
        default:
          v = 1e-3f + 1e-7f * v;  // hardly more than an offset
      }
    }
  }
  return m;
}

void check_odd_values(const Encode& encode) {
  for (const Format* format : coded_formats()) {
    for (const int64_t cols : {512, 416}) {
      const auto source = dense(odd_matrix(cols), DType::f32);
      for (const Effort effort : {Effort::fast, Effort::full})
        expect_same(encode, make_case(*format, effort), source->tensor, {}, "odd");
      Case plain = make_case(*format);
      plain.rotation[0].kind = plain.rotation[1].kind = RotationKind::none;
      expect_same(encode, plain, source->tensor, {}, "odd, not rotated");
      plain.options.scale_rule = ScaleRule::shape_gain;
      expect_same(encode, plain, source->tensor, {}, "odd, shape-gain");
    }
  }
}

void check_rotations(const Encode& encode) {
  const auto source = dense(normal_matrix(2, 3 * 1024 + 992, 8), DType::bf16);
  for (const char* name : {"tq3", "itq3_s", "itq3_s8", "tq2:full", "tq3+2", "q8_0"}) {
    for (const int block : {32, 64, 128, 256, 512, 1024}) {
      Case c = make_case(get_format(name), Effort::fast);
      for (Rotation& rotation : c.rotation) {
        rotation.kind = RotationKind::hadamard;
        rotation.block = block;
        rotation.signs = block != 256;
      }
      expect_same(encode, c, source->tensor, {}, "block " + std::to_string(block));
    }
  }
}

// There are many normal groups, so that rare roundings are met.
void check_many(const Encode& encode, int64_t rows) {
  const auto source = dense(normal_matrix(rows, 1024, 77), DType::bf16);
  for (const char* name : {"tq2", "tq3", "tq4", "itq3_s", "itq3_s:strict", "itq3_s:ternary",
                           "itq3_s8", "tq4+4", "tq3:full", "q4_0"})
    expect_same(encode, make_case(get_format(name)), source->tensor, some_scales(1024), "many");
}

const Encode kEmulated = emulate;

TEST(EncoderOnTheHost, givesTheBytesOfTheCpuForEveryShape) {
  check_shapes(kEmulated);
}

TEST(EncoderOnTheHost, givesTheBytesOfTheCpuForOddValues) {
  check_odd_values(kEmulated);
}

TEST(EncoderOnTheHost, givesTheBytesOfTheCpuForEveryRotationBlock) {
  check_rotations(kEmulated);
}

TEST(EncoderOnTheHost, givesTheBytesOfTheCpuForManyGroups) {
  check_many(kEmulated, 24);
}

TEST(EncoderPlan, coversEveryScalarFormatAndNoDenseRotation) {
  for (const Format& format : all_formats()) {
    if (format.kind != CodeKind::scalar) continue;
    for (int pass = 0; pass < format.passes; ++pass) {
      Rotation rotation = make_case(format).rotation[pass];
      EXPECT_TRUE(cuda::encoding::plan_pass(format, pass, rotation, {}, 4096)) << format.name;
      rotation.kind = RotationKind::qr;
      EXPECT_FALSE(cuda::encoding::plan_pass(format, pass, rotation, {}, 4096)) << format.name;
    }
  }
}

TEST(EncoderPlan, roundsThePowerOfASubScaleAsTheCpuDoes) {
  const auto plan = cuda::encoding::plan_pass(get_format("itq3_s8"), 0, {}, {}, 256);
  ASSERT_TRUE(plan);
  Random random(3);
  for (int i = 0; i < 200000; ++i) {
    float square = static_cast<float>(std::exp2(-100 * random.uniform() * random.uniform() + 3));
    if (i % 2 == 0) {  // around a root of two, where the rounding is decided
      const int e = static_cast<int>(random.below(100)) - 96;
      square = std::ldexp(2.0f, 2 * (e / 2)) * (1 + 1e-7f * static_cast<float>(random.normal()));
    }
    const long expected = std::lround(std::log2(std::sqrt(square)));
    ASSERT_EQ(cuda::encoding::nearest_power(plan->args.rule, square), expected) << square;
  }
}

// The slice is small, so that tensors take several.
class GpuEncoderTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::devices().empty()) GTEST_SKIP() << "no CUDA device: " << cuda::unavailable_reason();
    encoder_ = std::make_unique<cuda::GpuEncoder>(cuda::devices().front().index, nullptr, 16384);
    encode_ = [this](const Case& c, const Tensor& source, std::span<const float> scales) {
      return encode_on_gpu(*encoder_, c, source, scales);
    };
  }

  std::unique_ptr<cuda::GpuEncoder> encoder_;
  Encode encode_;
};

TEST_F(GpuEncoderTest, givesTheBytesOfTheCpuForEveryShape) {
  check_shapes(encode_);
}

TEST_F(GpuEncoderTest, givesTheBytesOfTheCpuForOddValues) {
  check_odd_values(encode_);
}

TEST_F(GpuEncoderTest, givesTheBytesOfTheCpuForEveryRotationBlock) {
  check_rotations(encode_);
}

TEST_F(GpuEncoderTest, givesTheBytesOfTheCpuForManyGroups) {
  check_many(encode_, 200);
}

TEST_F(GpuEncoderTest, convertsToEveryPlainType) {
  Matrix m = normal_matrix(70, 1030, 6);
  for (size_t i = 0; i < m.values.size(); ++i)
    m.values[i] *= std::ldexp(1.0f, -static_cast<int>(i % 40));  // down to denormal halves
  for (const DType from : {DType::f32, DType::f16, DType::bf16}) {
    const auto source = dense(m, from);
    for (const DType to : {DType::f32, DType::f16, DType::bf16}) {
      expect_same(encode_, make_case(dense_format(to)), source->tensor, {}, "converted");
      expect_same(encode_, make_case(dense_format(to)), source->tensor, some_scales(m.cols),
                  "converted");
    }
  }
}

TEST_F(GpuEncoderTest, refusesTheFirstPositionThatIsNotFinite) {
  for (const char* name : {"tq3", "itq3_s", "itq3_s8", "q8_0", "tq2:full", "f32", "f16", "tq4+4"}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      Matrix m = normal_matrix(90, 1184, 4);
      m.values[77 * 1184 + 3] = bad;
      m.values[37 * 1184 + 1100] = bad;
      m.values[37 * 1184 + 1111] = bad;
      const auto source = dense(m, DType::f32);
      expect_same(encode_, make_case(get_format(name)), source->tensor, {}, "not finite");
    }
  }
}

TEST_F(GpuEncoderTest, refusesWhatOverflows) {
  Matrix m = normal_matrix(3, 128, 4);
  const Case c = make_case(get_format("tq3"));
  const uint32_t seed = c.rotation[0].seed;
  for (size_t i = 0; i < 128; ++i)
    m.values[128 + i] = std::numeric_limits<float>::max() * rotation_sign(seed, i);
  const auto source = dense(m, DType::f32);
  EXPECT_EQ(encode_on_gpu(*encoder_, c, source->tensor, {}).refusal,
            "value too large to rotate at row 1, column 0");
  for (const char* name : {"tq3", "tq4+4", "tq3:full", "f16", "bf16"})
    expect_same(encode_, make_case(get_format(name)), source->tensor, {}, "overflow");
}

TEST_F(GpuEncoderTest, refusesWhatItDoesNotKnow) {
  const auto source = dense(normal_matrix(2, 128), DType::f32);
  Case c = make_case(get_format("tq3"));
  EXPECT_TRUE(encoder_->supports(*c.format, c.rotation, 128));
  c.rotation[0].kind = RotationKind::qr;
  EXPECT_FALSE(encoder_->supports(*c.format, c.rotation, 128));
  EXPECT_NE(encode_on_gpu(*encoder_, c, source->tensor, {}).refusal, "");
  const Case wide = make_case(get_format("tq3:full"));
  EXPECT_FALSE(encoder_->supports(*wide.format, wide.rotation, int64_t{1} << 20));
}

TEST_F(GpuEncoderTest, columnNormsHaveTheBitsOfTheCpu) {
  ThreadPool pool(1);
  for (const int64_t rows : {1, 255, 256, 700}) {
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      const auto source = dense(normal_matrix(rows, 130, 9), type);
      std::vector<double> expected(130, 0.25), got(130, 0.25);
      add_column_norms(source->tensor, pool, expected);
      encoder_->add_column_norms(source->tensor, got);
      EXPECT_EQ(got, expected) << rows << ' ' << dtype_name(type);
    }
  }
}

}  // namespace
}  // namespace walsh
