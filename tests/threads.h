// Sets the number of threads in tests that are not about threads. Several tests run at a time, one
// on each core. With the thread sanitizer there are two.
#pragma once

namespace walsh::test {

#ifdef __SANITIZE_THREAD__
inline constexpr int kThreads = 2;
#else
inline constexpr int kThreads = 1;
#endif

}  // namespace walsh::test
