// Limits memory, for death tests.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#if defined(__has_feature)
#define WALSH_HAS_FEATURE(x) __has_feature(x)
#else
#define WALSH_HAS_FEATURE(x) 0
#endif

namespace walsh::test {

// A sanitizer's shadow memory needs the address space that limit_memory() takes away.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    WALSH_HAS_FEATURE(address_sanitizer) || WALSH_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kShadowMemory = true;
#else
inline constexpr bool kShadowMemory = false;
#endif

// Leaves this process `room` bytes beside those of its address space that are taken now. Ends it
// with the status 99 where that cannot be done.
inline void limit_memory(rlim_t room) {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + room;
  const rlimit limit{bytes, bytes};
  if (pages == 0 || setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(99);
}

}  // namespace walsh::test
