#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "walsh/error.h"

namespace walsh {
namespace {

#if defined(__has_feature)
#define WALSH_HAS_FEATURE(x) __has_feature(x)
#else
#define WALSH_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    WALSH_HAS_FEATURE(address_sanitizer) || WALSH_HAS_FEATURE(thread_sanitizer)
constexpr bool kShadowMemory = true;
#else
constexpr bool kShadowMemory = false;
#endif

// Leaves room for a few stacks of threads and starts many. Ends the process with the status of the
// Error.
[[noreturn]] void start_threads_without_memory() {
  constexpr rlim_t kRoom = rlim_t{32} << 20;
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + kRoom;
  const rlimit limit{bytes, bytes};
  if (pages == 0 || setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(99);
  try {
    const ThreadPool pool(1000);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::_Exit(exit_status(e.code()));
  }
  std::_Exit(0);
}

TEST(ThreadPoolDeathTest, ThreadsThatCannotBeStartedAreALimitError) {
  if (kShadowMemory) GTEST_SKIP() << "the sanitizer's shadow memory needs the address space";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_threads_without_memory(),
              testing::ExitedWithCode(exit_status(ErrorCode::limit)),
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
