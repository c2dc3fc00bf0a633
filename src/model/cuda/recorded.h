// Keeps batches of single tokens that were recorded as CUDA graphs: one for each number of rows and
// reach of the context, replayed with other tokens, positions and sequences.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

#include "base/cuda/graph.h"
#include "model/cuda/sampling.h"

namespace walsh {

class RecordedBatches {
 public:
  // A recorded batch depends on its rows, the reach of the context, whether tokens are chosen, and
  // whether some of them are drawn.
  using Shape = std::tuple<int64_t, int64_t, bool, bool>;
  struct Recorded {
    bool warm = false;                              // has run once
    int64_t used = 0;                               // count of the last batch that used it
    cuda::Graph graph[CudaSampling::kOpenBatches];  // by the slot that takes what is chosen
    std::map<int64_t, cuda::Graph> layers;  // of a part of a model: steps by their first layer
  };

  void count() { ++batches_; }
  // Returns what is recorded for its shape; of many shapes the one that has been unused for the
  // longest time is forgotten.
  Recorded& of(const Shape& shape) {
    if (!recorded_.contains(shape) && recorded_.size() == kMost) {
      recorded_.erase(std::min_element(
          recorded_.begin(), recorded_.end(),
          [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
    }
    Recorded& recorded = recorded_[shape];
    recorded.used = batches_;
    return recorded;
  }

 private:
  static constexpr size_t kMost = 64;

  std::map<Shape, Recorded> recorded_;
  int64_t batches_ = 0;
};

}  // namespace walsh
