#include "base/cuda/graph.h"

#include <cuda_runtime_api.h>

namespace walsh::cuda {

Graph Graph::record(Stream stream, FunctionRef<void()> work) {
  cudaGraph_t recorded = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "graph");
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &recorded);
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(stream, &recorded), "graph");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, recorded, 0);
  cudaGraphDestroy(recorded);
  check(error, "graph");
  Graph graph;
  graph.graph_ = std::shared_ptr<void>(
      executable, [](void* p) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(p)); });
  return graph;
}

void Graph::launch(Stream stream) const {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_.get()), stream), "graph");
}

}  // namespace walsh::cuda
