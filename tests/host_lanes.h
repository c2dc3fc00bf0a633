// Runs lanes of kernels/cuda/experts/lanes.h on the host as synchronized threads.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include "kernels/cuda/experts/lanes.h"

namespace walsh::cuda::test {

// A lane contributes this value.
struct Value {
  float value = 0;
  int index = 0;
};

// Holds the values that `count` lanes exchange. Sums are added in the order of the lanes.
class LaneGroup {
 public:
  explicit LaneGroup(int count)
      : barrier_(count), values_(static_cast<size_t>(count)), count_(count) {}

  class Lanes {
   public:
    Lanes(LaneGroup& group, int index) : group_(&group), index_(index) {}

    int index() const { return index_; }
    int count() const { return group_->count_; }
    void sync() const { group_->barrier_.arrive_and_wait(); }
    float sum(float x) const {
      return fold<float>(
          {x, 0}, [](float a, const Value& b) { return a + b.value; }, 0.0f);
    }
    float largest(float x) const {
      return fold<float>(
          {x, 0}, [](float a, const Value& b) { return b.value > a ? b.value : a; },
          -std::numeric_limits<float>::infinity());
    }
    int total(int i) const {
      return fold<int>(
          {0, i}, [](int a, const Value& b) { return a + b.index; }, 0);
    }
    int least(int i) const {
      return fold<int>(
          {0, i}, [](int a, const Value& b) { return std::min(a, b.index); },
          std::numeric_limits<int>::max());
    }
    uint32_t most(uint32_t key) const {
      return fold<uint32_t>(
          {0, static_cast<int>(key)},
          [](uint32_t a, const Value& b) { return std::max(a, static_cast<uint32_t>(b.index)); },
          0u);
    }
    Rank rank(bool flag) const {
      group_->values_[static_cast<size_t>(index_)] = {0, flag ? 1 : 0};
      sync();
      Rank rank;
      for (int lane = 0; lane < count(); ++lane) {
        const int other = group_->values_[static_cast<size_t>(lane)].index;
        rank.before += lane < index_ ? other : 0;
        rank.all += other;
      }
      sync();
      return rank;
    }

   private:
    template <typename T, typename Join>
    T fold(const Value& mine, const Join& join, T all) const {
      group_->values_[static_cast<size_t>(index_)] = mine;
      sync();
      for (const Value& other : group_->values_)
        all = join(all, other);
      sync();
      return all;
    }

    LaneGroup* group_;
    int index_;
  };

  // Runs body(lanes) in every lane.
  template <typename Body>
  static void run(int count, const Body& body) {
    LaneGroup group(count);
    std::vector<std::jthread> threads;
    for (int lane = 1; lane < count; ++lane)
      threads.emplace_back([&group, &body, lane] { body(Lanes(group, lane)); });
    body(Lanes(group, 0));
  }

 private:
  std::barrier<> barrier_;
  std::vector<Value> values_;
  int count_;
};

}  // namespace walsh::cuda::test
