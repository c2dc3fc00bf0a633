// Tests what the table of kernels says of every format, and that it is true.
#include "codec/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "codec/panels.h"

namespace walsh {
namespace {

using ::testing::HasSubstr;

// Holds a tensor of zeros: scales are 0, and every code is one that the format has.
struct Zeros {
  std::vector<std::vector<std::byte>> memory;
  Tensor tensor;

  Zeros(const Format& format, int64_t rows, int64_t cols) {
    tensor.format = &format;
    tensor.rows = rows;
    tensor.cols = cols;
    std::vector<std::span<const std::byte>> arrays;
    for (const ArraySpec& spec : array_specs(format, rows, cols))
      arrays.emplace_back(memory.emplace_back(spec.bytes));
    bind_arrays(tensor, arrays);
  }
};

std::vector<const Format*> formats() {
  std::vector<const Format*> all;
  for (const Format& format : all_formats())
    all.push_back(&format);
  for (const char* name : {"tq2:g64", "tq4+2:g32", "tc3:h:L14", "tc4:hq:L14:blocks"})
    all.push_back(&get_format(name));
  return all;
}

TEST(Kernels, RowsStandInTheOrderOfTheirNumbers) {
  size_t at = 0;
  for (const KernelRow& row : all_kernels())
    EXPECT_EQ(static_cast<size_t>(row.kernel), at++) << row.name;
}

TEST(Kernels, ACpuPacksWhatItMultipliesAndUnpacksTheSameCodes) {
  for (const Format* format : formats()) {
    EXPECT_TRUE(has_kernel(*format, Kernel::cpu_products)) << format->name;
    EXPECT_EQ(codec_of(*format).pack == nullptr, format->dense) << format->name;
    if (format->dense) continue;
    Zeros zeros(*format, 19, 96);
    for (auto& array : zeros.memory)
      for (size_t i = 0; i < array.size(); ++i)
        array[i] = static_cast<std::byte>(i * 37 % 128);
    for (int pass = 0; pass < format->passes; ++pass) {
      const PanelMatrix panels = pack_panels(zeros.tensor, pass);
      const std::span<const std::byte> codes = zeros.tensor.pass[pass].codes;
      std::vector<std::byte> found(codes.size());
      unpack_codes(panels, found);
      EXPECT_TRUE(std::equal(codes.begin(), codes.end(), found.begin())) << format->name;
    }
  }
}

TEST(Kernels, OnlyProductCodesAreLookedUp) {
  for (const Format* format : formats()) {
    const bool product = format->name.starts_with("pq3");
    EXPECT_EQ(has_kernel(*format, Kernel::cpu_lookup), product) << format->name;
  }
}

TEST(Kernels, AMissingKernelIsRefusedByTheNameOfTheFormat) {
  for (const Format* format : formats()) {
    for (const KernelRow& row : all_kernels()) {
      if (row.refusal.empty()) continue;
      const std::string reason = why_not(row.kernel, *format);
      EXPECT_EQ(reason.empty(), has_kernel(*format, row.kernel)) << format->name << row.name;
      if (!reason.empty()) {
        EXPECT_THAT(reason, HasSubstr(format->name));
      }
    }
  }
  const Format& quantiles = get_format("tc3:hq");
  EXPECT_EQ(why_not(Device{}, quantiles), "");
  EXPECT_THAT(why_not(Kernel::gpu_products, quantiles), HasSubstr("use --device cpu"));
  EXPECT_THAT(why_not(Kernel::gpu_weight_side, get_format("q8_0")), HasSubstr("up to 4 bits"));
}

TEST(Codecs, AllFunctionsThatOtherCodeCallsAreThere) {
  for (const Codec* codec : all_codecs()) {
    EXPECT_TRUE(codec->fields && codec->decode_row && codec->scales && codec->level_rms);
    EXPECT_TRUE(codec->encode && codec->cost && codec->searches && codec->fits_scales);
    EXPECT_TRUE(codec->has_kernel && codec->count) << codec->name;
    EXPECT_TRUE(!codec->searches_tiles || codec->encode_two_sided) << codec->name;
    EXPECT_EQ(codec->finer_scales == nullptr, codec->scale_misfit == nullptr) << codec->name;
    EXPECT_EQ(codec->pack == nullptr, codec->unpack == nullptr) << codec->name;
    EXPECT_EQ(codec->codebook == nullptr, codec->codebook_bytes == 0) << codec->name;
  }
}

TEST(Codecs, ArraysCanBeCutWhereTheirRowsEnd) {
  for (const Format* format : formats()) {
    for (int pass = 0; pass < format->passes; ++pass) {
      for (const PassField& field : pass_fields(*format, pass, 48, 256)) {
        if (field.matrix_rows == PassField::kAllRows) {
          EXPECT_EQ(field.rows, 1) << format->name << ' ' << field.suffix;
        } else {
          EXPECT_EQ(field.rows * field.matrix_rows, 48) << format->name << ' ' << field.suffix;
        }
      }
    }
  }
}

}  // namespace
}  // namespace walsh
