// What the GPU's executor does where it computes a part of a model.
#include <cstring>

#include "model/cuda/executor.h"

namespace walsh {

// What is computed without a break is recorded as one graph, by its first layer. It runs once
// before, so that every kernel and algorithm is loaded.
void CudaExecutor::run_layers(int64_t begin, int64_t end) {
  cuda::select_device(model_.device.index);
  if (!can_record()) return compute_layers(begin, end);
  Recorded& recorded = recorded_batch();
  const auto [found, first] = recorded.layers.try_emplace(begin);
  if (first) return compute_layers(begin, end);
  cuda::Graph& graph = found->second;
  if (graph.empty())
    graph = cuda::Graph::record(stream_.get(), [&] { compute_layers(begin, end); });
  graph.launch(stream_.get());
}

void CudaExecutor::read_rows(Rows which, int64_t first, int64_t count, float* to) {
  cuda::select_device(model_.device.index);
  const int64_t hidden = model_.config.hidden;
  const uint64_t bytes = static_cast<uint64_t>(count * hidden) * sizeof(float);
  cuda::copy_to_host(host_rows_.as(), row(which, first, hidden), bytes, stream_.get());
  stream_.synchronize();
  std::memcpy(to, host_rows_.as(), bytes);
}

void CudaExecutor::write_rows(Rows which, int64_t first, int64_t count, const float* from) {
  cuda::select_device(model_.device.index);
  const int64_t hidden = model_.config.hidden;
  const uint64_t bytes = static_cast<uint64_t>(count * hidden) * sizeof(float);
  rows_sent_.wait();
  std::memcpy(host_rows_.as(), from, bytes);
  cuda::copy_to_device(row(which, first, hidden), host_rows_.as(), bytes, stream_.get());
  rows_sent_.record(stream_.get());
}

}  // namespace walsh
