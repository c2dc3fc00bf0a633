// Measures operations on rows between the products of prompts, which are inputs of products, rope
// with the append to the cache, and the sum of experts. Times are medians of graph replays over
// arrays that take turns and exceed the caches.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "device_timing.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/rows/prepare.h"
#include "kernels/cuda/rows/rows.h"

namespace walsh::cuda {
namespace {

constexpr double kCopyBandwidth = 4.26e12;
// This many bytes are read before any are read again.
constexpr uint64_t kTurnBytes = uint64_t{600} << 20;

void report(const std::string& what, double bytes, double time) {
  fmt::print("{:44} {:8.1f} us  {:5.2f} TB/s  {:3.0f} % of a copy\n", what, time * 1e6,
             bytes / time * 1e-12, 100 * bytes / time / kCopyBandwidth);
}

int turns(double bytes) {
  return static_cast<int>(std::clamp<double>(static_cast<double>(kTurnBytes) / bytes + 1, 2, 40));
}

// Random values are made once, because they do not affect the time.
Buffer copy_of(const Buffer& values, int64_t count) {
  Buffer buffer(static_cast<uint64_t>(count) * 4);
  for (uint64_t at = 0; at < buffer.bytes(); at += values.bytes()) {
    check(cudaMemcpy(buffer.as<char>() + at, values.as(),
                     std::min(values.bytes(), buffer.bytes() - at), cudaMemcpyDeviceToDevice),
          "copy");
  }
  return buffer;
}

struct Input {
  const char* name;
  int64_t m, width;
  bool normed, gated;
  int block;
  int bits;  // the output has 8 (int8), 16 (bf16 rows) or 32 (float rows)
};

void bench_input(const Input& c, const Buffer& values) {
  const double bytes = static_cast<double>(c.m * c.width) * (4 * (c.gated ? 2 : 1) + c.bits / 8.0);
  const int count = turns(bytes);
  std::vector<Buffer> x, up, rows;
  std::vector<Activations> out;
  for (int i = 0; i < count; ++i) {
    x.push_back(copy_of(values, c.m * c.width));
    if (c.gated) up.push_back(copy_of(values, c.m * c.width));
    if (c.bits == 8) {
      out.emplace_back(c.m, (c.width + 255) / 256 * 256, 128, 1);
    } else {
      rows.emplace_back(static_cast<uint64_t>(c.m * c.width * c.bits / 8));
    }
  }
  const double time = seconds(count, [&](int i, Stream stream) {
    const auto at = static_cast<size_t>(i);
    InputSource source;
    source.x = x[at].as<float>();
    source.up = c.gated ? up[at].as<float>() : nullptr;
    source.gain = c.normed ? values.as<float>() : nullptr;
    source.eps = 1e-6f;
    source.ldx = source.width = c.width;
    InputForm form;
    form.rotation = {.kind = RotationKind::none};
    if (c.block > 0) form.rotation = Rotation{.block = c.block};
    form.padded = c.width;
    if (c.bits == 8) {
      form.out = &out[at];
    } else {
      form.rows = rows[at].as();
      form.stride = c.width;
      form.row_type = c.bits == 16 ? DType::bf16 : DType::f32;
    }
    prepare(source, {&form, 1}, c.m, stream);
  });
  report(fmt::format("{:18} {:5} x {:5} -> {:2} bits", c.name, c.m, c.width, c.bits), bytes, time);
}

void bench_rope(const Heads& h, int64_t m, const Buffer& values) {
  const int64_t width = h.heads * h.dim, kv = h.kv_heads * h.dim;
  const int64_t pages = (m + kPageTokens - 1) / kPageTokens;
  const double bytes =
      static_cast<double>(m) * (8.0 * static_cast<double>(width) + 12.0 * static_cast<double>(kv));
  const int count = turns(bytes);
  std::vector<Buffer> q, k, v;
  std::vector<KvPool> pools;
  for (int i = 0; i < count; ++i) {
    q.push_back(copy_of(values, m * width));
    k.push_back(copy_of(values, m * kv));
    v.push_back(copy_of(values, m * kv));
    pools.emplace_back(h.kv_heads, h.dim, pages);
  }
  const auto counted = [](int64_t n, int32_t factor) {
    return filled<int32_t>(static_cast<uint64_t>(n),
                           [=](uint64_t i) { return static_cast<int32_t>(i) * factor; });
  };
  const Buffer table = counted(pages, 1), positions = counted(m, 1), sequences = counted(m, 0);
  const Buffer angles = copy_of(values, m * h.dim / 2);
  const double time = seconds(count, [&](int i, Stream stream) {
    const auto at = static_cast<size_t>(i);
    RopeCall call;
    call.q = q[at].as<float>();
    call.k = k[at].as<float>();
    call.v = v[at].as<float>();
    call.ldq = width;
    call.ldk = call.ldv = kv;
    call.m = m;
    call.heads = h.heads;
    call.q_norm = call.k_norm = values.as<float>();
    call.eps = 1e-6f;
    call.cos = call.sin = angles.as<float>();
    rope_and_store(call, pools[at], {table.as<const int32_t>(), pages},
                   {positions.as<const int32_t>(), sequences.as<const int32_t>()}, stream);
  });
  report(fmt::format("rope {}/{} x {}  {:5} rows", h.heads, h.kv_heads, h.dim, m), bytes, time);
}

void bench_sum(int64_t m, int64_t width, int chosen, const Buffer& values) {
  const double bytes = 4.0 * static_cast<double>(m * width) * (chosen + 2);
  const int count = turns(bytes);
  std::vector<Buffer> results, streams;
  for (int i = 0; i < count; ++i) {
    results.push_back(copy_of(values, m * chosen * width));
    streams.push_back(copy_of(values, m * width));
  }
  // Slots are ordered by expert, so those of a row are far apart.
  const Buffer slot = filled<int32_t>(static_cast<uint64_t>(m * chosen), [&](uint64_t i) {
    const auto choices = static_cast<uint64_t>(chosen);
    return static_cast<int32_t>(i % choices * static_cast<uint64_t>(m) + i / choices);
  });
  const double time = seconds(count, [&](int i, Stream stream) {
    const auto at = static_cast<size_t>(i);
    ExpertSum call;
    call.results = results[at].as<float>();
    call.slot = slot.as<const int32_t>();
    call.weights = values.as<float>();
    call.out = call.stream = streams[at].as<float>();
    call.m = m;
    call.width = width;
    call.chosen = chosen;
    sum_experts(call, stream);
  });
  report(fmt::format("sum of {} experts   {:5} x {:5}", chosen, m, width), bytes, time);
}

void bench_all() {
  const Buffer values = normal_floats(1 << 20);
  for (const int64_t m : {64, 512, 4096}) {
    const Input inputs[] = {
        {"norm", m, 2048, true, false, 128, 16},
        {"norm", m, 2048, true, false, 128, 8},
        {"norm, not rotated", m, 2048, true, false, 0, 32},
        {"rotated", m, 4096, false, false, 128, 16},
        {"rotated", m, 2048, false, false, 128, 8},
        {"silu * up", 8 * m, 768, false, true, 128, 8},
        {"norm", m, 4096, true, false, 128, 16},
        {"norm", m, 5120, true, false, 128, 16},
        {"silu * up", m, 12288, false, true, 128, 16},
    };
    for (const Input& c : inputs)
      bench_input(c, values);
    bench_rope({32, 4, 128}, m, values);
    bench_rope({32, 8, 128}, m, values);
    bench_rope({16, 4, 256}, m, values);
    bench_sum(m, 2048, 8, values);
  }
}

}  // namespace
}  // namespace walsh::cuda

int main() {
  if (walsh::cuda::devices().empty()) {
    fmt::print("{}\n", walsh::cuda::unavailable_reason());
    return 1;
  }
  walsh::cuda::bench_all();
  return 0;
}
