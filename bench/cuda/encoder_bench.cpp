// Measures the throughput of the GPU encoder, first of its kernels alone on weights in device
// memory, then including the transfer from host memory. Prints one line per case. The argument is
// the index of the device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/cuda/device.h"
#include "base/half.h"
#include "base/random.h"
#include "codec/encode/cuda/encoder.h"
#include "codec/scalar/cuda/encode_launch.h"
#include "codec/scalar/cuda/encode_plan.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using namespace cuda;
using namespace cuda::encoding;

constexpr int64_t kRows = 1 << 17, kCols = 8192;  // these are 2 GiB of bf16
constexpr int kRepeats = 5;

// Returns bf16 weights drawn from N(0, 0.02^2); 2^22 of them are different.
std::vector<uint16_t> weights(int64_t count) {
  constexpr int64_t kPattern = 1 << 22;
  Random random(1);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    values[at] = i < kPattern ? f32_to_bf16(0.02f * static_cast<float>(random.normal()))
                              : values[at - static_cast<size_t>(kPattern)];
  }
  return values;
}

// Returns the median seconds of `work` on a stream.
double seconds(Stream stream, const std::function<void()>& work) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i <= kRepeats; ++i) {
    check(cudaEventRecord(begin, stream), "event");
    work();
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "benchmark");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (i > 0) times.push_back(ms);  // the first one warms up
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e-3;
}

Rotation rotation_of(const Format& format, int pass) {
  Rotation rotation;
  rotation.kind = format.rotation_block == 0 ? RotationKind::none : RotationKind::hadamard;
  if (format.rotation_block != 0) rotation.block = format.rotation_block;
  rotation.seed = rotation_seed(42, 0, pass);
  return rotation;
}

// Makes the launches of all passes that GpuEncoder makes for a slice, over weights on the device.
class Resident {
 public:
  Resident(const Format& format, Effort effort, const void* values, Stream stream)
      : stream_(stream) {
    for (const ArraySpec& spec : array_specs(format, kRows, kCols))
      arrays_.emplace_back(spec.bytes);
    if (format.passes > 1) residual_ = Buffer(kRows * kCols * sizeof(float));
    sums_ = Buffer(2 * kRows * (kCols / kSpan) * sizeof(double));
    totals_ = Buffer(3 * sizeof(double), true);
    size_t next = 0;
    for (int pass = 0; pass < format.passes; ++pass) {
      plans_.push_back(*plan_pass(format, pass, rotation_of(format, pass), {effort, {}}, kCols));
      PassPlan& plan = plans_.back();
      PassArgs& args = plan.args;
      factors_.emplace_back(std::max<size_t>(plan.factors.size(), 1) * sizeof(float));
      copy_to_device(factors_.back().as(), plan.factors.data(), plan.factors.size() * sizeof(float),
                     stream);
      const bool first = pass == 0, last = pass + 1 == format.passes;
      args.source = {first ? values : residual_.as(), nullptr,
                     first ? SourceType::bf16 : SourceType::f32, true, kCols};
      args.refusals = {totals_.as<uint64_t>() + 2, 0};
      args.factors = factors_.back().as<float>();
      args.codes = arrays_[next++].as<uint32_t>();
      args.scales = arrays_[next++].as<uint16_t>();
      if (format.code[pass].has_offset) args.offsets = arrays_[next++].as<uint16_t>();
      if (format.code[pass].sub_group) args.sub_scales = arrays_[next++].as<uint16_t>();
      args.residual = last ? nullptr : residual_.as<float>();
      args.norms = first ? sums_.as<double>() : nullptr;
      args.errors = sums_.as<double>() + kRows * (kCols / kSpan);
    }
    synchronize(stream);
  }

  void run() const {
    for (const PassPlan& plan : plans_) {
      launch_pass(plan.kind, plan.thresholds, plan.args, kRows, stream_);
      const int64_t blocks = kRows * plan.args.spans;
      if (plan.args.norms != nullptr) {
        launch_sum(plan.args.norms, blocks, totals_.as<double>(), stream_);
      }
      launch_sum(plan.args.errors, blocks, totals_.as<double>() + 1, stream_);
    }
  }

 private:
  Stream stream_;
  std::vector<Buffer> arrays_, factors_;
  Buffer residual_, sums_, totals_;
  std::vector<PassPlan> plans_;
};

void bench_kernels(Stream stream, const void* values) {
  const double count = static_cast<double>(kRows) * static_cast<double>(kCols);
  Buffer copy(static_cast<uint64_t>(2 * count));
  const double copy_time = seconds(stream, [&] {
    check(cudaMemcpyAsync(copy.as(), values, copy.bytes(), cudaMemcpyDeviceToDevice, stream), "");
  });
  copy = {};
  const double bandwidth = 4 * count / copy_time;
  std::printf("device copy: %.2f TB/s\n", bandwidth * 1e-12);
  std::printf("%-22s %10s %14s\n", "kernels, [131072, 8192]", "Gweights/s", "share of copy");
  const auto line = [&](const std::string& name, double time, double stored) {
    std::printf("%-22s %10.1f %12.1f %%\n", name.c_str(), count / time * 1e-9,
                100 * (2 * count + stored) / time / bandwidth);
    std::fflush(stdout);
  };
  const struct {
    const char* format;
    Effort effort;
  } cases[] = {
      {"tq3", Effort::fast},      {"tq3", Effort::full},     {"tq2", Effort::fast},
      {"tq2", Effort::full},      {"tq4", Effort::fast},     {"tq4", Effort::full},
      {"itq3_s", Effort::fast},   {"itq3_s", Effort::full},  {"itq3_s:ternary", Effort::full},
      {"itq3_s8", Effort::fast},  {"itq3_s8", Effort::full}, {"tq3:full", Effort::fast},
      {"tq3:full", Effort::full}, {"tq4+4", Effort::fast},   {"tq3+2", Effort::full},
      {"q8_0", Effort::fast},     {"q4_0", Effort::fast}};
  for (const auto& c : cases) {
    const Format& format = get_format(c.format);
    const Resident resident(format, c.effort, values, stream);
    const double time = seconds(stream, [&] { resident.run(); });
    line(std::string(c.format) + (c.effort == Effort::fast ? " fast" : " full"), time,
         static_cast<double>(tensor_bytes(format, kRows, kCols)));
  }
  const Source source{values, nullptr, SourceType::bf16, true, kCols};
  Buffer partial(kRows / kNormRows * kCols * sizeof(double)), norms(kCols * sizeof(double), true);
  line("column norms",
       seconds(stream,
               [&] {
                 launch_column_norms(source, kRows, partial.as<double>(), norms.as<double>(),
                                     stream);
               }),
       0);
}

// Measures encoding from host memory to arrays on the device, or back to the host.
void bench_whole(int device, const std::vector<uint16_t>& values) {
  Tensor source;
  source.format = &dense_format(DType::bf16);
  source.rows = kRows / 2;
  source.cols = kCols;
  source.data = std::as_bytes(std::span(values)).first(static_cast<size_t>(kRows * kCols));
  const Format& format = get_format("tq3");
  const Rotation rotation[2] = {rotation_of(format, 0), rotation_of(format, 1)};
  const std::vector<float> scales(static_cast<size_t>(kCols), 1.25f);
  const double count = static_cast<double>(source.rows) * static_cast<double>(source.cols);
  const auto line = [&](const std::string& name, const std::function<void()>& work) {
    work();
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      work();
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
      best = std::min(best, time.count());
    }
    std::printf("%-32s %8.1f Gweights/s %8.1f GB/s of source\n", name.c_str(), count / best * 1e-9,
                2e-9 * count / best);
    std::fflush(stdout);
  };
  std::printf("\nfrom host memory, [65536, 8192] bf16\n");
  for (const int threads : {1, 4, available_cores()}) {
    ThreadPool pool(threads);
    GpuEncoder encoder(device, &pool);
    const std::string suffix = ", " + std::to_string(threads) + " threads";
    line("tq3 fast" + suffix, [&] {
      encoder.encode(format, rotation, {Effort::fast, {}}, source, scales);
    });
    if (threads != available_cores()) continue;
    line("tq3 full" + suffix, [&] {
      encoder.encode(format, rotation, {Effort::full, {}}, source, scales);
    });
    line("tq3 fast, to host" + suffix, [&] {
      encoder.encode_to_host(format, rotation, {Effort::fast, {}}, source, scales, nullptr,
                             nullptr);
    });
    line("column norms" + suffix, [&] {
      std::vector<double> norms(static_cast<size_t>(kCols));
      encoder.add_column_norms(source, norms);
    });
  }
  const PinnedBuffer pinned(uint64_t{1} << 28);
  const Buffer target(pinned.bytes());
  OwnedStream stream;
  const double time = seconds(stream.get(), [&] {
    copy_to_device(target.as(), pinned.as(), pinned.bytes(), stream.get());
  });
  std::printf("copy from pinned memory: %.1f GB/s\n",
              static_cast<double>(pinned.bytes()) / time * 1e-9);
}

int run(int device) {
  const DeviceInfo info = use_device(device);
  std::printf("%s\n", info.name.c_str());
  const std::vector<uint16_t> values = weights(kRows * kCols);
  {
    OwnedStream stream;
    const Buffer resident(values.size() * sizeof(uint16_t));
    copy_to_device(resident.as(), values.data(), resident.bytes(), stream.get());
    bench_kernels(stream.get(), resident.as());
  }
  bench_whole(device, values);
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
