#include "io/keyed_hash.h"

#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

#include <ctime>

namespace walsh {
namespace {

uint64_t draw_secret() {
  uint64_t secret = 0;
  if (::getrandom(&secret, sizeof secret, GRND_NONBLOCK) == sizeof secret) return secret;
  // The kernel has not gathered enough entropy yet, so the clock stands in: the writer of a file
  // cannot know it either.
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return keyed_hash(
      static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec),
      static_cast<uint64_t>(::getpid()));
}

}  // namespace

uint64_t hash_secret() {
  static const uint64_t secret = draw_secret();
  return secret;
}

uint64_t keyed_hash(std::string_view key, uint64_t secret) {
  return XXH3_64bits_withSeed(key.data(), key.size(), secret);
}

}  // namespace walsh
