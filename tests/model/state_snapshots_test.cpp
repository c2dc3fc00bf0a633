#include "model/state_snapshots.h"

#include <gtest/gtest.h>

namespace walsh {
namespace {

TEST(StateSnapshots, FindsTheLastOneInFrontOfAPosition) {
  StateSnapshots snapshots(2, 3);
  EXPECT_EQ(snapshots.find(0, 100).position, 0);
  EXPECT_EQ(snapshots.find(0, 100).slot, -1);
  const int32_t late = snapshots.add(0, 40), early = snapshots.add(0, 20);
  EXPECT_GE(early, 2);
  EXPECT_NE(early, late);
  EXPECT_EQ(snapshots.find(0, 39).slot, early);
  EXPECT_EQ(snapshots.find(0, 40).slot, late);
  EXPECT_EQ(snapshots.find(0, 19).slot, -1);
  EXPECT_EQ(snapshots.find(1, 40).slot, -1);
  EXPECT_EQ(snapshots.add(0, 40), -1);  // it is there
}

TEST(StateSnapshots, TheLeastRecentlyUsedGivesWay) {
  StateSnapshots snapshots(2, 2);
  const int32_t first = snapshots.add(0, 10);
  const int32_t second = snapshots.add(1, 10);
  snapshots.truncate(0, 10);  // uses it
  EXPECT_EQ(snapshots.add(1, 20), second);
  EXPECT_EQ(snapshots.find(1, 15).slot, -1);
  EXPECT_EQ(snapshots.find(0, 10).slot, first);
}

TEST(StateSnapshots, SharedOnesLiveAsLongAsASequenceHasThem) {
  StateSnapshots snapshots(3, 2);
  const int32_t early = snapshots.add(0, 10), late = snapshots.add(0, 20);
  snapshots.share(0, 1, 15);
  EXPECT_EQ(snapshots.find(1, 30).slot, early);
  snapshots.truncate(0, -1);
  EXPECT_EQ(snapshots.find(0, 30).slot, -1);
  EXPECT_EQ(snapshots.find(1, 30).slot, early);
  EXPECT_EQ(snapshots.add(2, 5), late);  // not held by any sequence
  EXPECT_EQ(snapshots.find(1, 30).slot, early);
}

TEST(StateSnapshots, LieBehindThoseThatAreSkipped) {
  StateSnapshots snapshots(2, 2, 5);
  EXPECT_EQ(snapshots.add(0, 10), 7);
  EXPECT_EQ(snapshots.add(0, 20), 8);
  snapshots.truncate(0, 10);
  EXPECT_EQ(snapshots.add(0, 15), 8);
}

TEST(StateSnapshots, WithoutSlotsThereAreNone) {
  StateSnapshots snapshots(1, 0);
  EXPECT_EQ(snapshots.add(0, 10), -1);
  EXPECT_EQ(snapshots.find(0, 10).position, 0);
}

}  // namespace
}  // namespace walsh
