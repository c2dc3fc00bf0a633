// Measures the throughput of the trellis tile search on a GPU. The part `kernels` runs kernels
// alone with several numbers of tiles, `matrices` whole matrices from host memory without and with
// error feedback, and `layer` the matrices of two layers of an 8B model, one or several at once.
// Prints one line per case. The arguments are the index of the device and the parts; all three run
// if none is named.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/cuda/device.h"
#include "base/random.h"
#include "codec/encode/encode_tensor.h"
#include "codec/trellis/cuda/gpu_tiles.h"
#include "codec/trellis/trellis.h"
#include "codec/trellis/trellis_search.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using namespace cuda;
using namespace cuda::encoding;

std::vector<float> normal_values(int64_t count) {
  Random random(1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values)
    v = static_cast<float>(random.normal());
  return values;
}

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  return time.count();
}

// Returns the time of the shortest of a few repetitions.
double least_seconds(int repetitions, const std::function<void()>& work) {
  double least = seconds(work);
  for (int i = 1; i < repetitions; ++i)
    least = std::min(least, seconds(work));
  return least;
}

void bench_search(const DeviceInfo& device, const char* name, Effort effort, bool products,
                  int64_t tiles, const std::vector<float>& values) {
  const TrellisCode& code = get_format(name).trellis;
  if (products && !has_tile_products(code)) return;
  const TileSearchPlan plan =
      products ? plan_tile_products(code, tiles, device) : plan_tile_floats(code, tiles, device);
  if (plan.blocks == 0) return;
  const auto weights = static_cast<uint64_t>(tiles * kTileWeights);
  const Buffer targets(weights * sizeof(float)), states(weights * sizeof(uint16_t)),
      best(plan.best_bytes);
  OwnedStream stream;
  const TileSearchTables tables(code, stream.get());
  for (uint64_t i = 0; i < weights; i += values.size()) {
    const uint64_t count = std::min<uint64_t>(values.size(), weights - i);
    copy_to_device(targets.as<float>() + i, values.data(), count * sizeof(float), stream.get());
  }
  TileSearchArgs args = tables.args(plan);
  args.seam = detail::seam_weights(effort);
  args.tiles = tiles;
  args.targets = targets.as<float>();
  args.states = states.as<uint16_t>();
  args.best = best.as();
  synchronize(stream.get());
  const double time = least_seconds(3, [&] {
    launch_tile_search(code, plan, args, stream.get());
    synchronize(stream.get());
  });
  const double steps =
      static_cast<double>(tiles) * tile_steps(code) * (1 + 2.0 * args.seam / kTileWeights);
  std::printf(
      "%-10s %-4s %-8s %6lld tiles, %2d at once by %3d blocks %7.1f Mweights/s %6.2f "
      "Tstates/s\n",
      name, effort == Effort::full ? "full" : "fast", products ? "products" : "floats",
      static_cast<long long>(tiles), plan.group, plan.blocks,
      static_cast<double>(weights) / time * 1e-6,
      steps * std::ldexp(1.0, code.state_bits) / time * 1e-12);
  std::fflush(stdout);
}

void bench_kernels(const DeviceInfo& device) {
  const std::vector<float> values = normal_values(1 << 20);
  const int64_t wave = 8 * device.multiprocessors;
  std::printf("kernels\n");
  for (const bool products : {false, true}) {
    for (const char* name :
         {"tc3:h", "tc2:h", "tc2.5:h", "tc3.5:h", "tc4:h", "tc3:hq", "tc3:h:L14"})
      bench_search(device, name, Effort::full, products, 8 * wave, values);
    bench_search(device, "tc3:h", Effort::fast, products, 8 * wave, values);
    for (const int64_t tiles : {wave, wave / 2, int64_t{256}, int64_t{64}})
      bench_search(device, "tc3:h", Effort::full, products, tiles, values);
  }
}

// Makes matrices of any shape, and holds the statistics for their error feedback.
struct Weights {
  std::vector<float> values = normal_values(1 << 22);
  std::map<int64_t, ErrorFeedback> feedback;  // the keys are the numbers of columns

  void read(int64_t begin, int64_t end, float* out) const {
    const auto size = static_cast<int64_t>(values.size());
    while (begin < end) {
      const int64_t first = begin % size, count = std::min(end - begin, size - first);
      out = std::copy_n(values.data() + first, count, out);
      begin += count;
    }
  }
  const ErrorFeedback* feedback_for(const Format& format, int64_t cols, ThreadPool& pool) {
    if (const auto known = feedback.find(cols); known != feedback.end()) return &known->second;
    InputMoments moments(cols);
    moments.add(values.data(), cols, std::min<int64_t>(512, (1 << 22) / cols), pool);
    Rotation rotation;
    rotation.block = format.rotation_block;
    const auto [place, added] = feedback.try_emplace(cols, moments, std::span<const float>(),
                                                     rotation, padded_cols(format, cols), pool);
    return &place->second;
  }
};

// Encodes a matrix from host memory to its arrays in host memory.
void encode_matrix(GpuTiles& device, const Format& format, const Weights& weights, int64_t rows,
                   int64_t cols, ThreadPool& pool, const ErrorFeedback* feedback) {
  Rotation rotation[2];
  rotation[0].block = format.rotation_block;
  const auto read_rows = [&](int64_t begin, int64_t end, float* out) {
    weights.read(begin * cols, end * cols, out);
  };
  encode_tensor(format, rotation, {}, rows, cols, read_rows, pool, nullptr, nullptr, feedback,
                &device);
}

void bench_matrix(GpuTiles& device, Weights& weights, const char* name, int64_t rows, int64_t cols,
                  bool fed_back) {
  const Format& format = get_format(name);
  ThreadPool pool(available_cores());
  const ErrorFeedback* feedback = fed_back ? weights.feedback_for(format, cols, pool) : nullptr;
  const double time =
      least_seconds(2, [&] { encode_matrix(device, format, weights, rows, cols, pool, feedback); });
  std::printf("%-12s [%lld, %lld]%s, %d threads %8.1f Mweights/s\n", name,
              static_cast<long long>(rows), static_cast<long long>(cols),
              fed_back ? " fed back" : "", pool.size(),
              static_cast<double>(rows * cols) / time * 1e-6);
  std::fflush(stdout);
}

struct Shape {
  int64_t rows, cols;
};
// These are q, k, v, o, gate, up and down of an 8B model.
constexpr Shape kLayer[] = {{4096, 4096},  {1024, 4096},  {1024, 4096}, {4096, 4096},
                            {14336, 4096}, {14336, 4096}, {4096, 14336}};
constexpr int kLayers = 2;

// Encodes all matrices of the layers with a number of threads, each of which plans with the whole
// device or with an equal part of it.
void bench_layers(const DeviceInfo& info, Weights& weights, const char* name, bool fed_back,
                  int at_once, bool parts) {
  const Format& format = get_format(name);
  const int cores = available_cores();
  ThreadPool all(cores);
  std::vector<const ErrorFeedback*> feedback;
  for (const Shape& shape : kLayer)
    feedback.push_back(fed_back ? weights.feedback_for(format, shape.cols, all) : nullptr);
  DeviceInfo share = info;
  if (parts) share.multiprocessors = info.multiprocessors / at_once;
  constexpr size_t kMatrices = std::size(kLayer);
  std::atomic<size_t> next{0};
  const double time = seconds([&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < at_once; ++i) {
      threads.emplace_back([&] {
        select_device(info.index);
        GpuTiles device(share);
        ThreadPool pool(cores);
        for (size_t m; (m = next.fetch_add(1)) < kLayers * kMatrices;) {
          const Shape& shape = kLayer[m % kMatrices];
          encode_matrix(device, format, weights, shape.rows, shape.cols, pool,
                        feedback[m % kMatrices]);
        }
      });
    }
    for (std::thread& thread : threads)
      thread.join();
  });
  double count = 0;
  for (const Shape& shape : kLayer)
    count += static_cast<double>(kLayers * shape.rows * shape.cols);
  std::printf("%-6s %d layers%s, %d matrices at once%s %8.1f Mweights/s\n", name, kLayers,
              fed_back ? " fed back" : "", at_once, parts ? " in parts" : "", count / time * 1e-6);
  std::fflush(stdout);
}

int run(int index, const std::vector<std::string_view>& parts) {
  const auto wanted = [&](std::string_view part) {
    return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  const DeviceInfo device = use_device(index);
  std::printf("%s, %d multiprocessors\n", device.name.c_str(), device.multiprocessors);
  if (wanted("kernels")) bench_kernels(device);
  Weights weights;
  if (wanted("matrices")) {
    std::printf("whole matrices, host memory to host memory\n");
    GpuTiles tiles(device);
    for (const bool fed_back : {false, true}) {
      for (const Shape& shape : {kLayer[0], kLayer[1], kLayer[4], kLayer[6]})
        bench_matrix(tiles, weights, "tc3:h", shape.rows, shape.cols, fed_back);
    }
  }
  if (wanted("layer")) {
    for (const char* name : {"tc3:h", "tc4:h"}) {
      for (const bool fed_back : {true, false}) {
        for (const int at_once : {1, 2, 3})
          bench_layers(device, weights, name, fed_back, at_once, false);
        for (const int at_once : {2, 4})
          bench_layers(device, weights, name, fed_back, at_once, true);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace walsh

int main(int argc, char** argv) {
  try {
    std::vector<std::string_view> parts(argv + std::min(argc, 1), argv + argc);
    int device = 0;
    if (!parts.empty() && parts[0].find_first_not_of("0123456789") == std::string_view::npos) {
      device = std::atoi(parts[0].data());
      parts.erase(parts.begin());
    }
    return walsh::run(device, parts);
  } catch (const walsh::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return walsh::exit_status(e.code());
  }
}
