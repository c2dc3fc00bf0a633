#include "codec/tensor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <set>

#include "base/half.h"
#include "codec/kernels.h"
#include "walsh/error.h"

namespace walsh {
namespace {

uint64_t bytes_of(std::string_view name, int64_t rows, int64_t cols) {
  return tensor_bytes(get_format(name), rows, cols);
}

TEST(Registry, namesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (const Format& format : all_formats()) {
    EXPECT_TRUE(names.insert(format.name).second) << format.name;
    EXPECT_EQ(&get_format(format.name), &format);
    EXPECT_FALSE(format.note.empty());
    EXPECT_EQ(format.passes, format.dense ? 0 : format.code[1].bits != 0 ? 2 : 1);
    EXPECT_EQ(format.bound > 0, !format.dense) << format.name;
  }
  EXPECT_EQ(names.size(), 31u);
}

TEST(Registry, activationsAddLessThanATenthOfTheError) {
  constexpr double kInt8Error = 4e-5;  // of rotated activations, groups of 128
  for (const Format& format : all_formats()) {
    if (format.dense) continue;
    EXPECT_EQ(format.activation_planes, kInt8Error < format.bound / 10 ? 1 : 2) << format.name;
  }
}

TEST(Registry, anUnknownNameSuggestsANearOneOrListsAll) {
  const auto reason_for = [](const char* name) {
    try {
      get_format(name);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      return e.reason();
    }
    ADD_FAILURE() << name;
    return std::string();
  };
  EXPECT_EQ(reason_for("tq5").find("there is no type 'tq5'"), 0u);
  EXPECT_NE(reason_for("tq5").find("tq"), std::string::npos);
  EXPECT_NE(reason_for("Q4_K_M").find("tc4 and tq4 have about as many bits"), std::string::npos);
  EXPECT_NE(reason_for("iq2_xxs").find("tc2 has about as many bits"), std::string::npos);
  EXPECT_NE(reason_for("something").find("itq3_s8"), std::string::npos);
}

TEST(GroupProfiles, HaveMoreScalesOfTheSameCodesAndNoGpuKernels) {
  for (const char* name : {"tq2", "tq3", "tq4", "tq3+2", "tq4+2", "tq4+4"}) {
    const Format& format = get_format(name);
    for (const int group : {64, 32}) {
      const Format& profile = get_format(std::string(name) + ":G" + std::to_string(group));
      EXPECT_EQ(profile.name, std::string(name) + ":g" + std::to_string(group));
      EXPECT_EQ(&stored_format(profile.name), &profile);
      const auto more = static_cast<uint64_t>(2 * (512 / group - 512 / 128) * format.passes);
      EXPECT_EQ(tensor_bytes(profile, 1, 512), tensor_bytes(format, 1, 512) + more);
      EXPECT_EQ(profile.code[0].levels, format.code[0].levels);
      EXPECT_EQ(profile.rotation_block, format.rotation_block);
      EXPECT_EQ(why_not(Device{}, profile), "");
      EXPECT_EQ(why_not(Device{.cuda = true}, format), "");
      EXPECT_NE(why_not(Device{.cuda = true}, profile).find(profile.name), std::string::npos);
    }
  }
  for (const char* name :
       {"tq4:g128", "tq4:g16", "tq4:full:g64", "q4_0:g64", "itq3_s:g64", "pq3:g32"})
    EXPECT_THROW(get_format(name), Error) << name;
}

TEST(Registry, denseFormatsByType) {
  for (DType type : {DType::f32, DType::f16, DType::bf16})
    EXPECT_EQ(dense_format(type).name, dtype_name(type));
}

TEST(TensorBytes, per256WeightsAsInTheFormatTable) {
  EXPECT_EQ(bytes_of("itq3_s", 1, 256), 100u);
  EXPECT_EQ(bytes_of("itq3_s:strict", 1, 256), 100u);
  EXPECT_EQ(bytes_of("itq3_s8", 1, 256), 116u);
  EXPECT_EQ(bytes_of("tq2", 1, 256), 68u);
  EXPECT_EQ(bytes_of("tq3", 1, 256), 100u);
  EXPECT_EQ(bytes_of("tq4", 1, 256), 132u);
  EXPECT_EQ(bytes_of("tq4+4", 1, 256), 264u);
  EXPECT_EQ(bytes_of("tq4+2", 1, 256), 200u);
  EXPECT_EQ(bytes_of("tq3+2", 1, 256), 168u);
  EXPECT_EQ(bytes_of("tq3:full", 1, 256), 98u);
  EXPECT_EQ(bytes_of("q8_0", 1, 256), 272u);  // 34 bytes per 32
  EXPECT_EQ(bytes_of("q4_0", 1, 256), 144u);  // 18 bytes per 32
  EXPECT_EQ(bytes_of("bf16", 3, 100), 600u);
}

TEST(TensorBytes, tailsArePaddedTo32AndShareAGroup) {
  // 1376 = 5 * 256 + 96 makes six groups and 1376 * 3 / 8 code bytes.
  EXPECT_EQ(bytes_of("itq3_s", 2, 1376), 2u * (516 + 12 + 12));
  EXPECT_EQ(bytes_of("itq3_s8", 1, 1376), 516u + 12 + 12 + 2 * 43);
  EXPECT_EQ(bytes_of("tq3", 1, 33), 24u + 2);
  EXPECT_EQ(bytes_of("tq3", 1, 1), 12u + 2);
  EXPECT_EQ(padded_cols(get_format("tq3"), 33), 64);
  EXPECT_EQ(padded_cols(get_format("f16"), 33), 33);
}

TEST(ArraySpecs, namesInFileOrder) {
  const auto suffixes = [](std::string_view name) {
    std::string joined;
    for (const ArraySpec& spec : array_specs(get_format(name), 4, 256))
      joined += spec.suffix + ";";
    return joined;
  };
  EXPECT_EQ(suffixes("f32"), ";");
  EXPECT_EQ(suffixes("tq3"), "codes;scales;");
  EXPECT_EQ(suffixes("itq3_s"), "codes;scales;offsets;");
  EXPECT_EQ(suffixes("itq3_s8"), "codes;scales;offsets;sub_scales;");
  EXPECT_EQ(suffixes("tq4+2"), "codes;scales;codes2;scales2;");
}

TEST(ArraySpecs, hostileShapesAreErrors) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  for (const Format& format : all_formats()) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{0, 32},
                                     {32, 0},
                                     {-1, 32},
                                     {32, -32},
                                     {kHuge, kHuge},
                                     {int64_t{1} << 40, int64_t{1} << 40},
                                     {1, kHuge}}) {
      EXPECT_THROW(array_specs(format, rows, cols), Error) << format.name;
    }
  }
}

TEST(BindArrays, refusesWrongCountsAndSizes) {
  Tensor tensor;
  tensor.format = &get_format("tq3");
  tensor.rows = 1;
  tensor.cols = 128;
  const std::vector<std::byte> codes(48), scales(2);
  const std::span<const std::byte> good[] = {codes, scales};
  bind_arrays(tensor, good);
  EXPECT_EQ(tensor.pass[0].codes.data(), codes.data());
  EXPECT_EQ(tensor.pass[0].scales.data(), scales.data());
  const std::span<const std::byte> swapped[] = {scales, codes};
  EXPECT_THROW(bind_arrays(tensor, swapped), Error);
  EXPECT_THROW(bind_arrays(tensor, std::span(good).first(1)), Error);
}

// The itq3_s8 row is made by hand: value = d * sub_scale * level + offset.
TEST(DecodePassRow, combinesScaleSubScaleLevelAndOffset) {
  Tensor tensor;
  tensor.format = &get_format("itq3_s8");
  tensor.rows = 1;
  tensor.cols = 64;
  const ScalarCode& code = tensor.format->code[0];
  std::vector<uint8_t> codes(64);
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = i % 8;
  std::vector<std::byte> packed(24);
  pack_codes(code, codes.data(), 64, packed.data());
  const uint16_t scale = f32_to_f16(0.25f), offset = f32_to_f16(-0.5f);
  const uint16_t sub_scales[2] = {f32_to_f16(1.5f), f32_to_f16(2.0f)};
  const std::span<const std::byte> arrays[] = {packed, std::as_bytes(std::span(&scale, 1)),
                                               std::as_bytes(std::span(&offset, 1)),
                                               std::as_bytes(std::span(sub_scales))};
  bind_arrays(tensor, arrays);
  std::vector<float> out(64);
  decode_pass_row(tensor, 0, 0, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    const float scale_here = i < 32 ? 0.375f : 0.5f;
    EXPECT_EQ(out[i], scale_here * code.levels[i % 8] - 0.5f);
  }
}

TEST(DecodePassRow, int8CodesAreTheirOwnLevels) {
  Tensor tensor;
  tensor.format = &get_format("q8_0");
  tensor.rows = 1;
  tensor.cols = 32;
  std::vector<int8_t> codes(32);
  for (size_t i = 0; i < 32; ++i)
    codes[i] = static_cast<int8_t>(8 * static_cast<int>(i) - 127);
  const uint16_t scale = f32_to_f16(0.5f);
  const std::span<const std::byte> arrays[] = {std::as_bytes(std::span(codes)),
                                               std::as_bytes(std::span(&scale, 1))};
  bind_arrays(tensor, arrays);
  tensor.rotation[0].kind = RotationKind::none;
  std::vector<float> out(32);
  decode_rows(tensor, 0, 1, out.data());
  EXPECT_EQ(out[0], -63.5f);
  EXPECT_EQ(out[31], 60.5f);
}

TEST(DecodeRows, denseRowsConvert) {
  const float values[] = {1.5f, -2.0f, 0.25f, 3.0f};
  for (DType type : {DType::f32, DType::f16, DType::bf16}) {
    uint16_t halves[4];
    for (size_t i = 0; i < 4; ++i)
      halves[i] = type == DType::f16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
    Tensor tensor;
    tensor.format = &dense_format(type);
    tensor.rows = 2;
    tensor.cols = 2;
    tensor.data = std::as_bytes(std::span(halves));
    if (type == DType::f32) tensor.data = std::as_bytes(std::span(values));
    float out[2];
    decode_rows(tensor, 1, 2, out);
    EXPECT_EQ(out[0], 0.25f);
    EXPECT_EQ(out[1], 3.0f);
  }
}

}  // namespace
}  // namespace walsh
