#include "cache/cache_type.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "walsh/error.h"

namespace walsh {
namespace {

const std::vector<std::string> kNames = {"f16",        "q8_0", "q4_0", "tq3_0",
                                         "tq3_0:seed", "kt2",  "kt3",  "kt4"};

TEST(CacheType, NamesAreThoseOfTheDocumentation) {
  std::vector<std::string> names;
  for (const CacheType& type : all_cache_types()) {
    names.emplace_back(type.name);
    EXPECT_EQ(&get_cache_type(type.name), &type) << type.name;
    EXPECT_FALSE(type.note.empty()) << type.name;
  }
  EXPECT_EQ(names, kNames);
}

TEST(CacheType, UnknownNamesAreRefusedWithTheKnownOnes) {
  for (const char* name : {"", "kt5", "tq3", "KT3", "kt3 ", "tq3_0:"}) {
    try {
      get_cache_type(name);
      ADD_FAILURE() << "'" << name << "' was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      EXPECT_NE(e.where().find("'" + std::string(name) + "'"), std::string::npos) << e.what();
      for (const std::string& known : kNames)
        EXPECT_NE(e.reason().find(known), std::string::npos) << known << " in " << e.what();
    }
  }
}

TEST(CacheType, CodedTypesHaveWhatTheKernelsNeed) {
  for (const CacheType& type : all_cache_types()) {
    EXPECT_EQ(type.coded, type.name != "f16");
    if (!type.coded) continue;
    EXPECT_FALSE(type.code.has_offset) << type.name;
    EXPECT_EQ(type.code.sub_group, 0) << type.name;
    if (type.code.bits == 8) continue;
    ASSERT_NE(type.code.levels, nullptr) << type.name;
    ASSERT_NE(type.code.levels_i8, nullptr) << type.name;
    for (int c = 0; c < 1 << type.code.bits; ++c) {
      const float unit = type.code.unit;
      EXPECT_NEAR(unit * static_cast<float>(type.code.levels_i8[c]), type.code.levels[c],
                  0.51 * static_cast<double>(unit))
          << type.name << " code " << c;
    }
  }
}

TEST(CacheType, BitsPerValueAreThoseOfTheDocumentation) {
  struct Case {
    const char* name;
    double at128, at64;
  };
  for (const Case& c : std::vector<Case>{{"f16", 16, 16},
                                         {"q8_0", 8.5, 8.5},
                                         {"q4_0", 4.5, 4.5},
                                         {"tq3_0", 3.5, 3.5},
                                         {"tq3_0:seed", 3.5, 3.5},
                                         {"kt2", 2.125, 2.25},
                                         {"kt3", 3.125, 3.25},
                                         {"kt4", 4.125, 4.25}}) {
    EXPECT_EQ(cache_bits(get_cache_type(c.name), 128), c.at128) << c.name;
    EXPECT_EQ(cache_bits(get_cache_type(c.name), 64), c.at64) << c.name;
  }
}

TEST(CacheType, HeadsArePaddedToWholeUnitsWhenCoded) {
  for (const CacheType& type : all_cache_types()) {
    for (const int64_t head_dim : {32, 64, 96, 128, 256})
      EXPECT_EQ(padded_head_dim(type, head_dim), head_dim) << type.name;
    EXPECT_EQ(padded_head_dim(type, 80), type.coded ? 96 : 80) << type.name;
    EXPECT_EQ(padded_head_dim(type, 8), type.coded ? 32 : 8) << type.name;
  }
  // The padding is stored, and so counts.
  EXPECT_EQ(cache_bits(get_cache_type("f16"), 80), 16);
  EXPECT_EQ(cache_bits(get_cache_type("tq3_0"), 80), (96 * 3 + 3 * 16) / 80.0);
  EXPECT_EQ(cache_bits(get_cache_type("kt4"), 80), (96 * 4 + 16) / 80.0);
}

TEST(CacheType, ScalesAreOnePerGroupOrOnePerVector) {
  for (const auto& [name, at128, at80] :
       std::vector<std::tuple<std::string, int64_t, int64_t>>{{"f16", 0, 0},
                                                              {"q8_0", 4, 3},
                                                              {"q4_0", 4, 3},
                                                              {"tq3_0", 4, 3},
                                                              {"tq3_0:seed", 4, 3},
                                                              {"kt2", 1, 1},
                                                              {"kt3", 1, 1},
                                                              {"kt4", 1, 1}}) {
    EXPECT_EQ(cache_groups(get_cache_type(name), 128), at128) << name;
    EXPECT_EQ(cache_groups(get_cache_type(name), 80), at80) << name;
  }
}

TEST(CacheType, CachesAreFp16UnlessToldOtherwise) {
  CacheTypes types;
  EXPECT_FALSE(types.coded());
  types.keys = &get_cache_type("kt3");
  EXPECT_TRUE(types.coded());
  types.keys = &get_cache_type("f16");
  types.values = &get_cache_type("q8_0");
  EXPECT_TRUE(types.coded());
}

}  // namespace
}  // namespace walsh
