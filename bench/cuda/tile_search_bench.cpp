// Throughput of the search for tiles of trellis codes on a GPU: kernels alone at several numbers of
// tiles, then whole matrices from host memory without and with error feedback. Prints one line per
// case; arguments: [index of the device].
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/cuda/device.h"
#include "base/random.h"
#include "formats/trellis.h"
#include "quantize/cuda/gpu_tiles.h"
#include "quantize/encode/encode_tensor.h"
#include "quantize/trellis/trellis_search.h"
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

// The least of a few repetitions.
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
  std::printf("%-10s %-4s %-8s %6lld tiles, %2d at once %7.1f Mweights/s %6.2f Tstates/s\n", name,
              effort == Effort::full ? "full" : "fast", products ? "products" : "floats",
              static_cast<long long>(tiles), plan.group, static_cast<double>(weights) / time * 1e-6,
              steps * std::ldexp(1.0, code.state_bits) / time * 1e-12);
  std::fflush(stdout);
}

void bench_kernels(const DeviceInfo& device) {
  const std::vector<float> values = normal_values(1 << 20);
  const int64_t wave = 8 * device.multiprocessors;
  std::printf("kernels\n");
  for (const bool products : {false, true}) {
    for (const char* name : {"tc3:h", "tc2:h", "tc2.5:h", "tc3.5:h", "tc4:h", "tc3:hq", "tc3:h:L14",
                             "tc3:v2", "tc3:L12"})
      bench_search(device, name, Effort::full, products, 8 * wave, values);
    bench_search(device, "tc3:h", Effort::fast, products, 8 * wave, values);
    for (const int64_t tiles : {wave, wave / 2, int64_t{256}, int64_t{64}})
      bench_search(device, "tc3:h", Effort::full, products, tiles, values);
  }
}

// A matrix from host memory to its arrays in host memory.
void bench_matrix(GpuTiles& device, const char* name, int64_t rows, int64_t cols, bool fed_back) {
  const Format& format = get_format(name);
  const std::vector<float> values = normal_values(1 << 22);
  Rotation rotation[2];
  rotation[0].block = format.rotation_block;
  ThreadPool pool(available_cores());
  const auto read_rows = [&](int64_t begin, int64_t end, float* out) {
    const auto size = static_cast<int64_t>(values.size());
    for (int64_t i = begin * cols; i < end * cols; ++i)
      *out++ = values[static_cast<size_t>(i % size)];
  };
  std::optional<ErrorFeedback> feedback;
  if (fed_back) {
    InputMoments moments(cols);
    moments.add(values.data(), cols, std::min<int64_t>(512, (1 << 22) / cols), pool);
    feedback.emplace(moments, std::span<const float>(), rotation[0], padded_cols(format, cols),
                     pool);
  }
  const double time = least_seconds(2, [&] {
    encode_tensor(format, rotation, {}, rows, cols, read_rows, pool, nullptr, nullptr,
                  feedback ? &*feedback : nullptr, &device);
  });
  std::printf("%-12s [%lld, %lld]%s, %d threads %8.1f Mweights/s\n", name,
              static_cast<long long>(rows), static_cast<long long>(cols),
              fed_back ? " fed back" : "", pool.size(),
              static_cast<double>(rows * cols) / time * 1e-6);
  std::fflush(stdout);
}

int run(int index) {
  const DeviceInfo device = use_device(index);
  std::printf("%s, %d multiprocessors\n", device.name.c_str(), device.multiprocessors);
  bench_kernels(device);
  std::printf("whole matrices, host memory to host memory\n");
  GpuTiles tiles(device);
  for (const bool fed_back : {false, true}) {
    bench_matrix(tiles, "tc3:h", 4096, 4096, fed_back);
    bench_matrix(tiles, "tc3:h", 14336, 4096, fed_back);
    bench_matrix(tiles, "tc3:h", 4096, 14336, fed_back);
  }
  return 0;
}

}  // namespace
}  // namespace walsh

int main(int argc, char** argv) {
  try {
    return walsh::run(argc > 1 ? std::atoi(argv[1]) : 0);
  } catch (const walsh::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return walsh::exit_status(e.code());
  }
}
