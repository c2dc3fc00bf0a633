#include "base/stop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/thread_pool.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Returns whether `action` ends with Error(interrupted).
template <typename Action>
bool stops(Action&& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::interrupted) << e.what();
    return true;
  }
  return false;
}

TEST(Stop, OnlyTheInnermostScopeOfTheThreadCounts) {
  std::atomic<bool> yes = true, no = false;
  EXPECT_FALSE(stops([] { check_stop(); }));
  const StopScope outer(yes);
  EXPECT_TRUE(stops([] { check_stop(); }));
  {
    const StopScope inner(no);
    EXPECT_FALSE(stops([] { check_stop(); }));
    no = true;
    EXPECT_TRUE(stops([] { check_stop(); }));
  }
  EXPECT_EQ(stop_flag(), &yes);
  bool other = true;
  std::thread([&] { other = stops([] { check_stop(); }); }).join();
  EXPECT_FALSE(other);
}

TEST(Stop, APoolStartsNothingMore) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::atomic<bool> flag = true;
    const StopScope scope(flag);
    std::atomic<int> calls = 0;
    EXPECT_TRUE(stops([&] { pool.run([&](int, int) { ++calls; }); }));
    EXPECT_TRUE(stops([&] { pool.for_ranges(10, 1, [&](int64_t, int64_t) { ++calls; }); }));
    EXPECT_EQ(calls, 0);
    flag = false;
    EXPECT_FALSE(stops([&] { pool.run([&](int, int) { ++calls; }); }));
    EXPECT_EQ(calls, threads);
  }
}

TEST(Stop, APoolEndsBetweenTwoIndices) {
  constexpr int64_t kMany = 1'000'000;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::atomic<bool> flag = false;
    const StopScope scope(flag);
    std::atomic<int64_t> calls = 0;
    EXPECT_TRUE(stops([&] {
      pool.for_each(kMany, [&](int64_t) {
        if (++calls == 5) flag = true;
      });
    }));
    EXPECT_LT(calls, 5 + 2 * threads) << "each thread may have begun one";
  }
}

TEST(Stop, AWorkerSeesTheFlagOfItsCaller) {
  ThreadPool pool(3);
  std::atomic<int> stopped = 0;
  const auto ask = [&](int, int) { stopped += stop_flag() != nullptr; };
  {
    const std::atomic<bool> flag = false;
    const StopScope scope(flag);
    pool.run(ask);
    EXPECT_EQ(stopped, 3);
  }
  pool.run(ask);
  EXPECT_EQ(stopped, 3) << "the scope has ended";
}

}  // namespace
}  // namespace walsh
