// Emulates the words, packets and barriers of blocks (emulated/cluster.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "kernels/emulated/cluster.h"
#include "kernels/emulated/device.h"

#define program_shared (static_cast<std::byte*>(emulated::block().shared()))

namespace walsh::cuda {

inline uint32_t exchanged_word(const float* p) {
  uint32_t word;
  __atomic_load(reinterpret_cast<const uint32_t*>(p), &word, __ATOMIC_RELAXED);
  emulated::block().ask();
  return word;
}

inline uint4 exchanged_words(const float* p) {
  uint32_t words[4];
  for (int i = 0; i < 4; ++i)
    __atomic_load(reinterpret_cast<const uint32_t*>(p) + i, words + i, __ATOMIC_RELAXED);
  emulated::block().ask();
  return {words[0], words[1], words[2], words[3]};
}

inline void exchange_word(float* p, uint32_t word) {
  __atomic_store(reinterpret_cast<uint32_t*>(p), &word, __ATOMIC_RELAXED);
}

inline std::mutex& packet_mutex() {
  static std::mutex mutex;
  return mutex;
}

inline uint4 exchanged_packet(const uint4* p) {
  uint4 v;
  {
    const std::lock_guard lock(packet_mutex());
    v = *p;
  }
  emulated::block().ask();
  return v;
}

inline void exchange_packet(uint4* p, uint4 v) {
  const std::lock_guard lock(packet_mutex());
  *p = v;
}

inline void meet_some(int meeting, int threads) {
  emulated::block().meet(meeting, threads);
}
inline void announce_to(int meeting, int threads) {
  emulated::block().announce(meeting, threads);
}

// It does not matter if nothing is read here, but what the pointer names must be there.
inline void expect_line(const void* p) {
  static_cast<void>(*static_cast<const volatile char*>(p));
}

inline void begin_arrivals(uint32_t) {}
inline void show_arrivals() {}
inline void expect_bytes(uint32_t barrier, int bytes) {
  emulated::Cluster::own().expect(barrier, bytes);
}
inline void send_to_block(uint32_t to, uint2 v, uint32_t barrier) {
  emulated::Cluster::own().send(to, v, barrier);
}
inline bool have_arrived(uint32_t barrier, int parity) {
  const bool done = emulated::Cluster::own().have_arrived(barrier, parity);
  if (!done) emulated::block().ask();
  return done;
}

}  // namespace walsh::cuda
