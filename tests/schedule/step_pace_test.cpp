#include "schedule/step_pace.h"

#include <gtest/gtest.h>

namespace walsh {
namespace {

// On this device a step takes `alone` seconds and `row` more for each token of a prompt, at least
// `least` of them.
struct PacedDevice {
  double alone, row, least = 0;

  double step(int64_t rows) const { return rows == 0 ? alone : alone + least + row * rows; }
};

// Returns the longest of a number of steps with endless prompts, from step `from` on.
double longest_step(StepPace& pace, const PacedDevice& device, int steps, int from) {
  double longest = 0;
  for (int i = 0; i < steps; ++i) {
    const int64_t rows = std::min<int64_t>(pace.rows(), 512);
    const double seconds = device.step(rows);
    if (i >= from) longest = std::max(longest, seconds);
    pace.took(seconds, rows);
  }
  return longest;
}

TEST(StepPace, KeepsStepsNearTheirTime) {
  for (const PacedDevice& device : {PacedDevice{0.003, 0.0005}, PacedDevice{0.003, 0.0005, 0.01},
                                    PacedDevice{0.01, 0.002}, PacedDevice{0.02, 0.0001, 0.02}}) {
    StepPace pace(0.05);
    for (int i = 0; i < 10; ++i)
      pace.took(device.step(0), 0);
    const double longest = longest_step(pace, device, 40, 12);
    EXPECT_LT(longest, 0.06) << device.alone << " " << device.row;
    EXPECT_GT(longest, 0.04) << device.alone << " " << device.row;
  }
}

TEST(StepPace, ReadsPromptsAlsoWhereTextsAloneTakeLonger) {
  StepPace pace(0.05);
  const PacedDevice device{0.2, 0.005};
  for (int i = 0; i < 10; ++i)
    pace.took(device.step(0), 0);
  const double longest = longest_step(pace, device, 40, 12);
  EXPECT_GT(longest, 0.35);
  EXPECT_LT(longest, 0.45) << "as much time for prompts as for texts";
}

TEST(StepPace, FollowsADeviceThatBecomesSlower) {
  StepPace pace(0.05);
  longest_step(pace, {0.003, 0.0002}, 20, 0);
  const int64_t before = pace.rows();
  EXPECT_LT(longest_step(pace, {0.003, 0.002}, 20, 8), 0.06);
  EXPECT_LT(pace.rows(), before / 5);
  EXPECT_GE(pace.rows(), 8);
}

TEST(StepPace, TheEndOfAPromptSaysNothingOfItsMiddle) {
  StepPace pace(0.05);
  const PacedDevice device{0.003, 0.0003, 0.01};
  longest_step(pace, device, 30, 0);
  const int64_t before = pace.rows();
  for (int i = 0; i < 10; ++i)
    pace.took(device.step(2), 2);
  EXPECT_EQ(pace.rows(), before);
}

TEST(StepPace, WithoutATimeThereIsNoLimit) {
  StepPace pace(0);
  pace.took(100, 512);
  EXPECT_GE(pace.rows(), 1 << 20);
}

}  // namespace
}  // namespace walsh
