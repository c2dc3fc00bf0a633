#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "limited_memory.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Leaves room for a few stacks of threads and starts many. Ends the process with the status of the
// Error.
[[noreturn]] void start_threads_without_memory() {
  test::limit_memory(rlim_t{32} << 20);
  try {
    const ThreadPool pool(1000);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::_Exit(exit_status(e.code()));
  }
  std::_Exit(0);
}

TEST(ThreadPoolDeathTest, ThreadsThatCannotBeStartedAreALimitError) {
  if (test::kShadowMemory) GTEST_SKIP() << "the sanitizer's shadow memory needs the address space";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_threads_without_memory(),
              ::testing::ExitedWithCode(exit_status(ErrorCode::limit)),
              "threads: cannot start 1000 threads: ");
}

TEST(ThreadPool, CoversEveryIndexOnceForAnyThreadCount) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::atomic<int>> hits(101);
      pool.for_ranges(101, 8, [&](int64_t b, int64_t e) {
        EXPECT_EQ(b % 8, 0);
        for (; b < e; ++b)
          hits[static_cast<size_t>(b)]++;
      });
      pool.for_each(101, [&](int64_t i) { hits[static_cast<size_t>(i)]++; });
      for (auto& h : hits)
        ASSERT_EQ(h.load(), 2);
    }
  }
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run([](int t, int) {
    if (t == 2) throw std::runtime_error("x");
  }),
               std::runtime_error);
  std::atomic<int> n{0};
  pool.run([&](int, int) { n++; });
  EXPECT_EQ(n.load(), 3);
}

}  // namespace
}  // namespace walsh
