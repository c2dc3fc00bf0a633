// Tests formats that walsh reads and no longer writes.
#include "codec/retired.h"

#include <gmock/gmock.h>

#include <cmath>

#include "codec/golden.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(RetiredFormats, aRateAloneIsOneProductPerStepAndInOldFilesATable) {
  const std::pair<const char*, const char*> rates[] = {
      {"tc2", ":L12"}, {"tc2.5", ":L14"}, {"tc3", ":L12"}, {"tc3.5", ":L14"}, {"tc4", ":L12"}};
  for (const auto& [rate, table] : rates) {
    for (const std::string scales : {"", ":blocks"}) {
      EXPECT_EQ(get_format(rate + scales).name, rate + (":h" + scales));
      EXPECT_EQ(stored_format(rate + scales).name, rate + (table + scales));
      EXPECT_TRUE(stored_format(rate + scales).retired);
    }
  }
}

TEST(RetiredFormats, areFoundInFilesWithAllTheirStateBits) {
  int found = 0;
  for (const std::string base : {"tc2", "tc2.5", "tc3", "tc3.5", "tc4", "tc5", "tc6", "tc3:v2",
                                 "tc2:h", "tc3:h", "tc4:h", "tc2:hq", "tc3.5:hq"}) {
    for (const int bits : {8, 10, 12, 14, 16}) {
      for (const std::string scales : {"", ":blocks"}) {
        const std::string name = base + ":L" + std::to_string(bits) + scales;
        try {
          const Format& format = stored_format(name);
          EXPECT_EQ(format.name, name);
          EXPECT_EQ(format.trellis.state_bits, bits) << name;
          EXPECT_EQ(format.trellis.block_scales, !scales.empty()) << name;
          const bool product = format.trellis.rule != TrellisRule::table;
          EXPECT_EQ(format.retired, !product || bits < 14) << name;
          ++found;
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::usage) << name;
        }
      }
    }
  }
  EXPECT_EQ(found, 92);
  for (const char* name : {"tc3:L11", "tc7", "tc3:L10:", "tc3:h:L8", "tc3:blocks:L10"})
    EXPECT_THROW(stored_format(name), Error) << name;
}

TEST(RetiredFormats, aUserWhoNamesOneGetsTheCodeOfItsRateAndIsTold) {
  for (const auto& [name, meant] : {std::pair{"tc3:L12", "tc3:h"},
                                    {"TC3:l14", "tc3:h"},
                                    {"tc3:v2", "tc3:h"},
                                    {"tc2.5:L10:blocks", "tc2.5:h:blocks"},
                                    {"tc4:h:L12", "tc4:h"}}) {
    EXPECT_EQ(get_format(name).name, meant) << name;
    EXPECT_THAT(about_name(name), HasSubstr("no longer written")) << name;
  }
  EXPECT_THAT(about_name("tc3:h:L14"), HasSubstr("--effort fast"));
  EXPECT_THAT(about_name("tc3:blocks"), HasSubstr("matrices that need such scales"));
  for (const char* name : {"tc3", "tc3:h", "tc3:hq", "tq3", "itq3_s:strict", "nothing"})
    EXPECT_THAT(about_name(name), IsEmpty()) << name;
}

TEST(RetiredFormats, withoutACodeOfTheirRateAreRefusedWithWhatToTake) {
  for (const char* name : {"tc5", "tc6:L10:blocks"}) {
    try {
      get_format(name);
      FAIL() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      EXPECT_THAT(e.what(), HasSubstr("tq4+2")) << name;
    }
  }
  EXPECT_THROW(get_format("tc3:L11"), Error);
}

TEST(RetiredFormats, areLoadedAsTheirLevelsInEightBits) {
  const nlohmann::json golden = testing_support::read_golden();
  int retired = 0;
  for (const auto& [name, g] : golden.items()) {
    const Format& format = stored_format(name);
    std::vector<std::vector<std::byte>> memory;
    const Tensor stored = testing_support::golden_tensor(golden, format, memory);
    const Tensor loaded = loaded_tensor(stored);
    EXPECT_EQ(loaded.format, &loaded_format(format)) << name;
    if (!format.retired) {
      EXPECT_EQ(loaded.format, &format) << name;
      continue;
    }
    ++retired;
    EXPECT_EQ(loaded.format->code[0].bits, 8) << name;
    EXPECT_EQ(loaded.rotation[0], stored.rotation[0]);
    std::vector<float> want(static_cast<size_t>(stored.rows * stored.cols)), got(want.size());
    decode_rows(stored, 0, stored.rows, want.data());
    decode_rows(loaded, 0, loaded.rows, got.data());
    double error = 0, norm = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error += std::pow(double{got[i]} - double{want[i]}, 2);
      norm += std::pow(double{want[i]}, 2);
    }
    // Scales are rounded to fp16, by 2^-11 of themselves at most.
    EXPECT_LT(std::sqrt(error / norm), 1.0 / 2048) << name;
  }
  EXPECT_EQ(retired, 10);
}

}  // namespace
}  // namespace walsh
