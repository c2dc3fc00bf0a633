// Records kernel launches as a CUDA graph, which starts with one call.
#pragma once

#include <memory>

#include "base/cuda/device.h"
#include "base/function_ref.h"

namespace walsh::cuda {

class Graph {
 public:
  Graph() = default;
  // Records what `work` launches on `stream` instead of running it. `work` must not wait for the
  // device or allocate memory on it.
  static Graph record(Stream stream, FunctionRef<void()> work);

  bool empty() const { return graph_ == nullptr; }
  void launch(Stream stream) const;

 private:
  std::shared_ptr<void> graph_;  // It points to a cudaGraphExec_t.
};

}  // namespace walsh::cuda
