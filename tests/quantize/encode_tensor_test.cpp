// Tests whole tensors: extreme values, refusals, determinism, the reported error.
#include "codec/encode/encode_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/half.h"
#include "codec/trellis/trellis.h"
#include "quantize/encoded.h"
#include "quantize/tiles_on_device.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing_support::decoded;
using testing_support::encode;
using testing_support::Encoded;
using testing_support::halves;
using testing_support::Matrix;
using testing_support::normal_matrix;
using testing_support::stored_bytes;

std::string refusal(const Format& format, const Matrix& m) {
  try {
    encode(format, m);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_EQ(e.where(), "");
    return e.reason();
  }
  return "accepted";
}

TEST(EncodeTensor, bytesDoNotDependOnTheNumberOfThreads) {
  const Matrix m = normal_matrix(70, 320, 7);
  for (const Format& format : all_formats()) {
    const Encoded one = encode(format, m, {}, 1);
    for (int threads : {2, 3}) {
      const Encoded many = encode(format, m, {}, threads);
      EXPECT_EQ(stored_bytes(many.tensor), stored_bytes(one.tensor)) << format.name;
      EXPECT_EQ(many.squared_error, one.squared_error);
      EXPECT_EQ(many.squared_norm, one.squared_norm);
    }
  }
}

TEST(EncodeTensor, reportedErrorIsThatOfTheDecodedRows) {
  for (int64_t cols : {1, 31, 100, 256, 1376}) {
    const Matrix m = normal_matrix(5, cols, 21);
    for (const Format& format : all_formats()) {
      const Encoded e = encode(format, m);
      const std::vector<float> back = decoded(e.tensor);
      double error = 0, norm = 0;
      for (size_t i = 0; i < back.size(); ++i) {
        const double difference = static_cast<double>(m.values[i]) - static_cast<double>(back[i]);
        error += difference * difference;
        norm += static_cast<double>(m.values[i]) * static_cast<double>(m.values[i]);
      }
      EXPECT_NEAR(e.squared_error, error, 1e-4 * error + 1e-12 * norm)
          << format.name << ' ' << cols;
      EXPECT_NEAR(e.squared_norm, norm, 1e-12 * norm);
    }
  }
}

TEST(EncodeTensor, arraysAreAlignedAndHaveTheirSizes) {
  for (const Format& format : all_formats()) {
    const Tensor t = encode(format, normal_matrix(3, 100)).tensor;
    EXPECT_EQ(stored_bytes(t).size(), tensor_bytes(format, 3, 100)) << format.name;
    for (const PassArrays& pass : t.pass) {
      for (const auto& array :
           {pass.codes, pass.scales, pass.offsets, pass.sub_scales, pass.col_scales})
        EXPECT_EQ(reinterpret_cast<uintptr_t>(array.data()) % 64, 0u) << format.name;
    }
  }
}

TEST(EncodeTensor, zerosHaveScaleZeroAndDecodeToZeros) {
  Matrix m{2, 300, std::vector<float>(600)};
  for (const Format& format : all_formats()) {
    const Encoded e = encode(format, m);
    for (const PassArrays& pass : e.tensor.pass) {
      for (const auto& array : {pass.scales, pass.offsets, pass.sub_scales, pass.col_scales}) {
        for (uint16_t h : halves(array))
          EXPECT_EQ(h, 0) << format.name;
      }
    }
    for (float v : decoded(e.tensor))
      EXPECT_EQ(v, 0.0f) << format.name;
    EXPECT_EQ(e.squared_error, 0);
  }
}

TEST(EncodeTensor, smallerGroupsHaveLessError) {
  const Matrix m = normal_matrix(64, 1024, 4);
  for (const std::string name : {"tq2", "tq3", "tq4", "tq3+2", "tq4+4"}) {
    const double usual = encode(get_format(name), m).nmse();
    const double half = encode(get_format(name + ":g64"), m).nmse();
    const double quarter = encode(get_format(name + ":g32"), m).nmse();
    EXPECT_LT(half, 0.99 * usual) << name;
    EXPECT_LT(quarter, 0.98 * half) << name;
  }
}

TEST(EncodeTensor, oneZeroGroupAmongOthersStaysExact) {
  Matrix m = normal_matrix(1, 512, 4);
  std::fill(m.values.begin(), m.values.begin() + 256, 0.0f);
  for (const char* name : {"tq3", "itq3_s", "itq3_s8", "tq4+4", "q4_0"}) {
    const std::vector<float> back = decoded(encode(testing_support::test_format(name), m).tensor);
    for (size_t i = 0; i < 256; ++i)
      EXPECT_EQ(back[i], 0.0f) << name;
  }
}

TEST(EncodeTensor, denormalValuesDecodeToFiniteSmallOnes) {
  Matrix m = normal_matrix(2, 256, 4);
  for (float& v : m.values)
    v *= 1e-40f;
  for (const Format& format : all_formats()) {
    for (float v : decoded(encode(format, m).tensor))
      EXPECT_LT(std::fabs(v), 1e-38f) << format.name;
  }
}

TEST(EncodeTensor, scalesBelowTheSmallestNormalHalfStillWork) {
  Matrix m = normal_matrix(8, 1024, 4);
  for (float& v : m.values)
    v *= 2e-5f;  // scales are subnormal halves with about 8 bits
  EXPECT_NEAR(encode(get_format("tq3"), m).nmse(), 0.0315, 0.002);
  EXPECT_NEAR(encode(get_format("itq3_s8"), m).nmse(), 0.0255, 0.002);
}

TEST(EncodeTensor, hugeValuesSaturateTheScale) {
  Matrix m = normal_matrix(2, 256, 4);
  for (float& v : m.values)
    v *= 1e30f;
  for (const Format& format : all_formats()) {
    if (format.dense) continue;
    const Encoded e = encode(format, m);
    for (float v : decoded(e.tensor)) {
      EXPECT_TRUE(std::isfinite(v)) << format.name;
      EXPECT_LT(std::fabs(v), 1e8f) << format.name;
    }
    EXPECT_NEAR(e.nmse(), 1.0, 1e-6) << format.name;
    if (format.code[0].sub_group == 0) {
      for (uint16_t h : halves(e.tensor.pass[0].scales))
        EXPECT_EQ(h & 0x7fff, 0x7bff) << format.name;
    }
  }
}

TEST(EncodeTensor, aConstantOffsetCostsNothingWithSigns) {
  Matrix m = normal_matrix(64, 512, 4);
  for (float& v : m.values)
    v += 3;
  EXPECT_NEAR(encode(get_format("tq3"), m).nmse(), 0.0315, 0.002);
  EXPECT_NEAR(encode(get_format("itq3_s"), m).nmse(), 0.0328, 0.002);
}

TEST(EncodeTensor, refusesNanAndInfinityByPosition) {
  for (const char* name : {"tq3", "itq3_s", "q8_0", "f32", "bf16", "tq4+4", "tc2:h:L8"}) {
    Matrix m = normal_matrix(40, 64, 4);
    m.values[37 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(refusal(testing_support::test_format(name), m), "NaN at row 37, column 5") << name;
    m.values[37 * 64 + 5] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(refusal(testing_support::test_format(name), m), "infinity at row 37, column 5")
        << name;
  }
}

TEST(EncodeTensor, refusesWhatOverflows) {
  Matrix m = normal_matrix(2, 64, 4);
  m.values[70] = 70000;
  EXPECT_EQ(refusal(get_format("f16"), m), "value too large for f16 at row 1, column 6");
  EXPECT_EQ(refusal(get_format("bf16"), m), "accepted");
  std::fill(m.values.begin() + 64, m.values.end(), std::numeric_limits<float>::max());
  EXPECT_EQ(refusal(get_format("bf16"), m), "value too large for bf16 at row 1, column 0");
  EXPECT_EQ(refusal(get_format("f32"), m), "accepted");
}

TEST(EncodeTensor, refusesARotationThatOverflows) {
  // The values are chosen to add up: the signs of the rotation times the largest float.
  Matrix m{1, 128, std::vector<float>(128)};
  for (size_t i = 0; i < 128; ++i)
    m.values[i] = std::numeric_limits<float>::max() * rotation_sign(rotation_seed(42, 0u, 0), i);
  EXPECT_EQ(refusal(get_format("tq3"), m).substr(0, 25), "value too large to rotate");
}

TEST(EncodeTensor, refusesEmptyShapes) {
  const Rotation rotation[2];
  ThreadPool pool(1);
  const auto read_rows = [](int64_t, int64_t, float*) { FAIL(); };
  EXPECT_THROW(
      encode_tensor(get_format("tq3"), rotation, {}, 0, 32, read_rows, pool, nullptr, nullptr),
      Error);
  EXPECT_THROW(
      encode_tensor(get_format("f16"), rotation, {}, 4, 0, read_rows, pool, nullptr, nullptr),
      Error);
}

TEST(EncodeTensor, aFailingReaderIsPassedOn) {
  const Rotation rotation[2];
  ThreadPool pool(2);
  const auto read_rows = [](int64_t begin, int64_t, float*) {
    if (begin >= 64) throw Error(ErrorCode::io, "file", "gone");
  };
  EXPECT_THROW(
      encode_tensor(get_format("tq3"), rotation, {}, 128, 64, read_rows, pool, nullptr, nullptr),
      Error);
}

TEST(EncodeTensor, qrAndPlainRotationsEncodeToo) {
  const Matrix m = normal_matrix(64, 416, 3);
  ThreadPool pool(1);
  const auto read_rows = [&](int64_t begin, int64_t end, float* out) {
    std::copy(m.row(begin), m.row(end), out);
  };
  for (RotationKind kind : {RotationKind::qr, RotationKind::none}) {
    const Rotation rotation[2] = {{kind, 128, 1, true}, {kind, 128, 2, true}};
    double error = 0, norm = 0;
    encode_tensor(get_format("tq3"), rotation, {}, m.rows, m.cols, read_rows, pool, &error, &norm);
    EXPECT_NEAR(error / norm, 0.0315, 0.002) << rotation_kind_name(kind);
  }
}

// This device fails when it has searched for some tiles.
class FailingDevice : public detail::TileDevice {
 public:
  explicit FailingDevice(ErrorCode code) : code_(code) {}

  bool searches(const Format&) const override { return true; }
  void prepare(const TrellisCode&, const detail::TrellisTable&, int) override { ++prepared; }
  int64_t batch_tiles() const override { return 1; }
  float* targets(int slot, int64_t tiles) override {
    targets_[slot].resize(static_cast<size_t>(tiles * kTileWeights));
    states_[slot].resize(targets_[slot].size());
    return targets_[slot].data();
  }
  void start(int slot, int64_t) override {
    if (slot == 1) fail();
  }
  const uint16_t* finish(int slot) override { return states_[slot].data(); }
  int64_t fed_back_rows(int64_t) const override { return kTileRows; }
  float* rows(int64_t count, int64_t cols) override {
    rows_.resize(static_cast<size_t>(count * cols));
    return rows_.data();
  }
  const uint16_t* feed_back(const detail::FedBackRows&) override { fail(); }
  void release() override { ++released; }

  int prepared = 0, released = 0;

 private:
  [[noreturn]] void fail() const { throw Error(code_, "GPU memory", "none is left"); }

  ErrorCode code_;
  std::vector<float> targets_[2], rows_;
  std::vector<uint16_t> states_[2];
};

TEST(EncodeTensor, whatADeviceHasNoMemoryForTheCpuEncodes) {
  const Matrix m = normal_matrix(40, 96, 4);
  FailingDevice full(ErrorCode::limit);
  testing_support::expect_same_tiles(full, "tc2:h:L8", m, Effort::fast);
  EXPECT_EQ(full.released, 1);
  testing_support::expect_same_fed_back(full, "tc2:h:L8", m, Effort::fast);
  EXPECT_EQ(full.prepared, 2);
  EXPECT_EQ(full.released, 2);
}

TEST(EncodeTensor, aDeviceThatFailsOtherwiseIsAnError) {
  FailingDevice broken(ErrorCode::internal);
  const auto result =
      testing_support::encode_tiles(testing_support::test_format("tc2:h:L8"),
                                    normal_matrix(40, 96, 4), Effort::fast, nullptr, &broken);
  EXPECT_EQ(result.refusal, "none is left");
}

}  // namespace
}  // namespace walsh
