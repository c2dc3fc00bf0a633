// Runs concurrent blocks on the host: each is a thread, alone or in clusters whose blocks write to
// each other's shared memory and read it.
#pragma once

#include <barrier>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "kernels/emulated/device.h"

namespace emulated {

// Finds shared memory of a block by 32-bit addresses: the dynamic one by its offset, variables by a
// number that they get when they are first asked for.
class Window {
 public:
  static constexpr uint32_t kVariable = 1u << 27;

  static Window& of(Block& block) {
    static thread_local Window window;
    if (window.block_ != block.number()) window.begin(block);
    return window;
  }
  static Window& own() { return of(block()); }
  uint32_t address_of(const void* p) {
    const auto* byte = static_cast<const std::byte*>(p);
    if (byte >= base_ && byte < base_ + bytes_) return static_cast<uint32_t>(byte - base_);
    for (size_t i = 0; i < variables_.size(); ++i)
      if (variables_[i] == p) return kVariable + static_cast<uint32_t>(i);
    variables_.push_back(p);
    return kVariable + static_cast<uint32_t>(variables_.size() - 1);
  }
  std::byte* at(uint32_t address) const {
    if (address + 16 > bytes_) std::abort();  // no variable is read or written by its address
    return base_ + address;
  }

 private:
  void begin(Block& block) {
    block_ = block.number();
    base_ = static_cast<std::byte*>(block.shared());
    bytes_ = block.shared_bytes();
    variables_.clear();
  }

  unsigned block_ = 0;  // the block of this window
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  std::vector<const void*> variables_;
};

// Bytes complete this barrier.
struct Arrivals {
  int missing = 1;
  int64_t bytes = 0;  // still to come; negative: they came before they were announced
  int parity = 0;     // of the phase at work

  void complete() {
    if (missing != 0 || bytes != 0) return;
    missing = 1;
    parity ^= 1;
  }
};

class Cluster {
 public:
  explicit Cluster(int blocks) : blocks_(blocks), meeting_(blocks) {}

  static Cluster& own() { return *current(); }
  static int rank() { return static_cast<int>(blockIdx.x) % own().blocks_; }
  static uint32_t remote(uint32_t address, int rank) {
    return address | static_cast<uint32_t>(rank + 1) << 28;
  }
  static Cluster*& current() {
    static thread_local Cluster* cluster = nullptr;
    return cluster;
  }

  void add(Window& window) {
    const std::lock_guard lock(mutex_);
    windows_[rank()] = &window;
  }
  void meet() { meeting_.arrive_and_wait(); }

  void expect(uint32_t barrier, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    Arrivals& of = arrivals(rank(), barrier);
    if (of.missing == 0) std::abort();  // announced twice in a phase
    --of.missing;
    of.bytes += bytes;
    of.complete();
  }
  void send(uint32_t to, uint2 v, uint32_t barrier) {
    const std::lock_guard lock(mutex_);
    std::memcpy(windows_[rank_of(to)]->at(local(to)), &v, sizeof v);
    Arrivals& of = arrivals(rank_of(barrier), local(barrier));
    of.bytes -= sizeof v;
    of.complete();
  }
  template <typename T>
  T read(uint32_t from) {
    const std::lock_guard lock(mutex_);
    T value;
    std::memcpy(&value, windows_[rank_of(from)]->at(local(from)), sizeof value);
    return value;
  }
  bool have_arrived(uint32_t barrier, int parity) {
    const std::lock_guard lock(mutex_);
    return arrivals(rank(), barrier).parity != parity;
  }

 private:
  static int rank_of(uint32_t address) { return static_cast<int>(address >> 28) - 1; }
  static uint32_t local(uint32_t address) { return address & ((1u << 28) - 1); }
  Arrivals& arrivals(int rank, uint32_t barrier) {
    return arrivals_[rank][barrier - Window::kVariable];
  }

  static constexpr int kMost = 4;  // blocks

  const int blocks_;
  std::barrier<> meeting_;
  std::mutex mutex_;
  Window* windows_[kMost] = {};
  Arrivals arrivals_[kMost][2];
};

}  // namespace emulated
