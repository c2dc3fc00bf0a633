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
  // What is recorded depends on the number of rows, the reach of the context, whether tokens are
  // chosen, and whether some of them are drawn at random.
  using Shape = std::tuple<int64_t, int64_t, bool, bool>;
  struct Recorded {
    bool warm = false;  // It says whether the steps have run once.
    int64_t used = 0;   // It was the count when a batch used it last.
    // There is a graph per slot that takes the chosen tokens.
    cuda::Graph graph[CudaSampling::kOpenBatches];
    // In a part of a model, steps are found by their first layer.
    std::map<int64_t, cuda::Graph> layers;
  };

  void count() { ++batches_; }
  // Returns the recording for a shape. If there are many, the one that has been unused for the
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
