// Tests weights at and beyond the range of fp16 scales, and weights that are not finite.
#include "codec/encode/scale_range.h"

#include <cmath>
#include <limits>

#include "codec/encode/bounds.h"
#include "quantize/tiny_pipeline.h"
#include "walsh/error.h"

namespace walsh {
namespace {

class ScaleRangeTest : public TinyPipeline {
 protected:
  void multiply(const std::string& name, double factor) {
    for (float& w : tiny_.values(name))
      w = static_cast<float>(w * factor);
    tiny_.save();
  }
  // Returns the error message; empty if the file is written.
  std::string refusal(const Recipe& recipe) {
    try {
      summary_ = quantize_to_file(*compressor(recipe), tiny_.file("out.gguf"), {});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input) << e.what();
      return e.what();
    }
    return "";
  }
  static Recipe plain(const std::string& type) {
    Recipe recipe = recipe_of(type);
    recipe.rotation = RotationKind::none;
    recipe.balance = false;
    recipe.encode.effort = Effort::full;
    return recipe;
  }

  QuantizeSummary summary_;
};

bool loses_its_range(const Format& format) {
  return !format.dense || format.dtype == DType::f16;
}

TEST_F(ScaleRangeTest, WeightsTooLargeForTheScalesAreRefusedInEveryFormat) {
  multiply("down", 1e10);
  for (const Format& format : all_formats()) {
    const Recipe recipe = recipe_of(std::string(format.name));
    const std::string text = refusal(recipe);
    const std::string used(format_at(format, recipe.encode.effort).name);
    if (!loses_its_range(format)) {
      EXPECT_EQ(text, "");
      continue;
    }
    EXPECT_NE(text.find("tensor down: "), std::string::npos) << format.name << text;
    EXPECT_NE(text.find("too large for " + used), std::string::npos) << text;
  }
}

TEST_F(ScaleRangeTest, WeightsTooSmallForTheScalesAreRefusedInEveryFormat) {
  multiply("down", 1e-14);
  for (const Format& format : all_formats()) {
    const Recipe recipe = recipe_of(std::string(format.name));
    const std::string text = refusal(recipe);
    const std::string used(format_at(format, recipe.encode.effort).name);
    if (!loses_its_range(format)) {
      EXPECT_EQ(text, "");
      continue;
    }
    EXPECT_NE(text.find("tensor down: weights too small for " + used), std::string::npos)
        << format.name << text;
    EXPECT_NE(text.find("would lose 100 % of the tensor"), std::string::npos) << text;
  }
}

TEST_F(ScaleRangeTest, OneSaturatedScaleIsEnough) {
  for (int c = 0; c < TinyCheckpoint::kFfn; ++c)
    tiny_.values("down")[static_cast<size_t>(5 * TinyCheckpoint::kFfn + c)] *= 1e8f;
  tiny_.save();
  for (const char* type : {"tq3", "tq4+4", "itq3_s8", "tc3:h:L14:blocks", "pq3"}) {
    EXPECT_NE(
        refusal(recipe_of(type))
            .find("tensor down: weights too large for " + std::string(type) + ": row 5 needs"),
        std::string::npos)
        << type << refusal(recipe_of(type));
  }
}

// Rows of unused tokens, dead neurons and padding are no reason to refuse a model.
TEST_F(ScaleRangeTest, RowsThatAreTinyBesideOthersAreNoLoss) {
  const auto width = static_cast<size_t>(TinyCheckpoint::kFfn);
  std::vector<float>& down = tiny_.values("down");
  for (size_t i = 0; i < 8 * width; ++i)
    down[i] = i < width ? 0.0f : down[i] * (i < 4 * width ? 1e-20f : 1e-6f);
  tiny_.save();
  for (const Format& format : all_formats()) {
    EXPECT_EQ(refusal(recipe_of(std::string(format.name))), "");
    Recipe unrotated = plain(std::string(format.name));
    unrotated.encode.effort = Effort::fast;
    EXPECT_EQ(refusal(unrotated), "");
  }
}

// Heavy tails without a rotation: the bound is missed, but not for the scales' range.
TEST_F(ScaleRangeTest, AMissedBoundIsTold) {
  for (float& w : tiny_.values("down"))
    w = 400 * w * w * w;
  tiny_.save();
  for (const char* type : {"tq3", "itq3_s", "tc3:h"}) {
    EXPECT_EQ(refusal(plain(type)), "");
    ASSERT_FALSE(summary_.missed.empty()) << type;
    EXPECT_EQ(summary_.missed.back().tensor, "down");
    EXPECT_GT(summary_.missed.back().nmse, 1.15 * summary_.missed.back().format->bound);
  }
  // These types rotate, or their bound is not about such weights.
  for (const char* type : {"tq3", "itq3_s", "q4_0", "q8_0", "bf16"}) {
    EXPECT_EQ(refusal(recipe_of(type)), "");
    EXPECT_TRUE(summary_.missed.empty()) << type << " " << summary_.missed.front().tensor;
  }
}

TEST_F(ScaleRangeTest, ScalesThatAreOnlyCoarseMissTheBound) {
  multiply("down", 1.6e-5);  // the scales of the residual are a few steps of fp16
  EXPECT_EQ(refusal(recipe_of("tq4+4")), "");
  ASSERT_EQ(summary_.missed.size(), 1u);
  const MissedBound& missed = summary_.missed[0];
  EXPECT_EQ(missed.tensor, "down");
  EXPECT_TRUE(misses_bound(*missed.format, missed.nmse));
  EXPECT_TRUE(missed_bound_text("down", *missed.format, missed.nmse).starts_with("down: NMSE "));
  EXPECT_EQ(refusal(recipe_of("tq4")), "");
  EXPECT_TRUE(summary_.missed.empty());
}

TEST_F(ScaleRangeTest, BoundsAreThoseOfRotatedWeights) {
  const Format& tq3 = get_format("tq3");
  EXPECT_FALSE(misses_bound(tq3, 1.14 * tq3.bound));
  EXPECT_TRUE(misses_bound(tq3, 1.16 * tq3.bound));
  EXPECT_TRUE(misses_bound(tq3, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_FALSE(misses_bound(get_format("q4_0"), 7 * get_format("q4_0").bound));
  EXPECT_TRUE(misses_bound(get_format("q4_0"), 9 * get_format("q4_0").bound));
  EXPECT_FALSE(misses_bound(get_format("tc3:h:L14"), 1));
  EXPECT_FALSE(misses_bound(get_format("bf16"), 1));
}

TEST_F(ScaleRangeTest, NaNAndInfinityAreRefusedInTensorsThatStayDense) {
  for (const char* name : {"embed", "norm1", "final", "head"}) {
    for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      float& w = tiny_.values(name)[7];
      const float before = w;
      w = value;
      tiny_.save();
      for (const char* type : {"tq3", "tc3:h:L14", "q8_0", "f32"}) {
        const std::string text = refusal(recipe_of(type));
        EXPECT_NE(text.find("tensor " + std::string(name) + ": "), std::string::npos)
            << type << " " << name << " " << text;
        EXPECT_NE(
            text.find(std::isnan(value) ? "NaN at row 0, column 7" : "infinity at row 0, column 7"),
            std::string::npos)
            << text;
      }
      w = before;
    }
  }
}

}  // namespace
}  // namespace walsh
