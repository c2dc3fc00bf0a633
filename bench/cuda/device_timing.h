// Makes data on the device and takes medians of graph replays, for benchmarks.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/cuda/device.h"
#include "base/half.h"
#include "base/random.h"

namespace walsh::cuda {

inline constexpr double kReadBandwidth = 4.64e12, kTensorPeak = 700e12;
// This many bytes are read before any are read again.
inline constexpr uint64_t kColdBytes = uint64_t{2200} << 20;
inline constexpr int kReplays = 15;

template <typename T>
Buffer filled(uint64_t count, const std::function<T(uint64_t)>& value) {
  std::vector<T> host(count);
  for (uint64_t i = 0; i < count; ++i)
    host[i] = value(i);
  Buffer buffer(count * sizeof(T));
  check(cudaMemcpy(buffer.as(), host.data(), buffer.bytes(), cudaMemcpyHostToDevice), "copy");
  return buffer;
}

inline Buffer normal_halves(uint64_t count) {
  Random random(1);
  Buffer buffer(count * 2);
  const uint64_t piece = std::min<uint64_t>(count, 1 << 20);
  std::vector<uint16_t> host(piece);
  for (uint16_t& h : host)
    h = f32_to_f16(static_cast<float>(random.normal()));
  for (uint64_t at = 0; at < count; at += piece) {
    check(cudaMemcpy(buffer.as<uint16_t>() + at, host.data(), 2 * std::min(piece, count - at),
                     cudaMemcpyHostToDevice),
          "copy");
  }
  return buffer;
}

inline Buffer normal_floats(uint64_t count, double size = 1) {
  Random random(2);
  return filled<float>(count, [&](uint64_t) { return static_cast<float>(size * random.normal()); });
}

// Returns the median seconds per launch, with `count` launches in a graph.
inline double seconds(int count, const std::function<void(int, Stream)>& work) {
  const OwnedStream stream;
  work(0, stream.get());
  stream.synchronize();
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < count; ++i)
    work(i, stream.get());
  check(cudaStreamEndCapture(stream.get(), &graph), "capture");
  check(cudaGraphInstantiate(&ready, graph, 0), "graph");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<double> times;
  for (int i = 0; i < kReplays + 2; ++i) {
    check(cudaEventRecord(begin, stream.get()), "event");
    check(cudaGraphLaunch(ready, stream.get()), "graph");
    check(cudaEventRecord(end, stream.get()), "event");
    check(cudaEventSynchronize(end), "event");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (i >= 2) times.push_back(ms * 1e-3 / count);
  }
  std::sort(times.begin(), times.end());
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return times[times.size() / 2];
}

struct Heads {
  int heads, kv_heads, dim;
};

}  // namespace walsh::cuda
