// Measures operations between the products, which are attention over cold caches, prefill, rope,
// embedding and sampling. Times are medians of graph replays; decode goes through the caches of
// many layers in turn.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "device_timing.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/prefill.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/sampling/sampling.h"

namespace walsh::cuda {
namespace {

void bench_decode(const Heads& h, int64_t context, int64_t m) {
  const int64_t per_sequence = (context + kPageTokens - 1) / kPageTokens;
  const uint64_t layer_bytes = KvPool::bytes(h.kv_heads, h.dim, m * per_sequence);
  const int layers = static_cast<int>(std::clamp<uint64_t>(kColdBytes / layer_bytes + 1, 2, 300));
  std::vector<KvPool> pools;
  for (int i = 0; i < layers; ++i) {
    KvPool pool;
    pool.kv_heads = h.kv_heads;
    pool.head_dim = h.dim;
    pool.pages = m * per_sequence;
    pool.keys = normal_halves(layer_bytes / 4);
    pool.values = normal_halves(layer_bytes / 4);
    pools.push_back(pool);
  }
  const Buffer table = filled<int32_t>(static_cast<uint64_t>(m * per_sequence),
                                       [](uint64_t i) { return static_cast<int32_t>(i); });
  const Buffer positions = filled<int32_t>(
      static_cast<uint64_t>(m), [&](uint64_t) { return static_cast<int32_t>(context - 1); });
  const Buffer sequences =
      filled<int32_t>(static_cast<uint64_t>(m), [](uint64_t i) { return static_cast<int32_t>(i); });
  const int64_t width = h.heads * h.dim;
  const Buffer q = normal_floats(static_cast<uint64_t>(m * width));
  const Buffer out(static_cast<uint64_t>(m * width) * 4);
  const AttentionScratch scratch(m, h.heads, h.kv_heads, h.dim);
  AttentionCall call;
  call.table = {table.as<const int32_t>(), per_sequence};
  call.rows = {positions.as<const int32_t>(), sequences.as<const int32_t>()};
  call.m = m;
  call.heads = h.heads;
  call.options.scale = static_cast<float>(1 / std::sqrt(h.dim));
  call.q = q.as<const float>();
  call.ldq = call.ldo = width;
  call.out = out.as<float>();
  const double time = seconds(layers, [&](int i, Stream stream) {
    call.cache = &pools[static_cast<size_t>(i)];
    attend_decode(call, context, scratch, stream);
  });
  const double bandwidth = static_cast<double>(2 * m * h.kv_heads * h.dim * context * 2) / time;
  fmt::print(
      "decode {:2}/{} x {:3}  batch {:2}  context {:6}  {:8.1f} us  {:5.2f} TB/s  {:3.0f} %\n",
      h.heads, h.kv_heads, h.dim, m, context, time * 1e6, bandwidth * 1e-12,
      100 * bandwidth / kReadBandwidth);
}

void bench_gemm(const Heads& h, int64_t m, int64_t before, int64_t window, bool tiles = false) {
  const int64_t per_sequence = (before + m + kPageTokens - 1) / kPageTokens;
  KvPool pool;
  pool.kv_heads = h.kv_heads;
  pool.head_dim = h.dim;
  pool.pages = per_sequence;
  const auto values = static_cast<uint64_t>(per_sequence * h.kv_heads * kPageTokens * h.dim);
  pool.keys = normal_halves(values);
  pool.values = normal_halves(values);
  const Buffer table = filled<int32_t>(static_cast<uint64_t>(per_sequence),
                                       [](uint64_t i) { return static_cast<int32_t>(i); });
  const Buffer positions = filled<int32_t>(static_cast<uint64_t>(m), [&](uint64_t i) {
    return static_cast<int32_t>(before) + static_cast<int32_t>(i);
  });
  const Buffer sequences = filled<int32_t>(static_cast<uint64_t>(m), [](uint64_t) { return 0; });
  const int64_t width = h.heads * h.dim;
  const Buffer q = normal_floats(static_cast<uint64_t>(m * width));
  const Buffer out(static_cast<uint64_t>(m * width) * 4);
  AttentionCall call;
  call.cache = &pool;
  call.table = {table.as<const int32_t>(), per_sequence};
  call.rows = {positions.as<const int32_t>(), sequences.as<const int32_t>()};
  call.m = m;
  call.heads = h.heads;
  call.options.window = window;
  call.options.scale = static_cast<float>(1 / std::sqrt(h.dim));
  call.q = q.as<const float>();
  call.ldq = call.ldo = width;
  call.out = out.as<float>();
  const double time = seconds(4, [&](int, Stream stream) {
    if (tiles) {
      detail::launch_prefill_mma(detail::prefill_args(call), stream);
    } else {
      attend_prefill(call, stream);
    }
  });
  double seen = 0;
  for (int64_t i = before; i < before + m; ++i)
    seen += static_cast<double>(window > 0 ? std::min(window, i + 1) : i + 1);
  const double rate = 4.0 * seen * static_cast<double>(width) / time;
  fmt::print(
      "prompt {:2}/{} x {:3}  {:5} after {:5} window {:4}  {:8.1f} us  {:5.0f} TFLOP/s  "
      "{:3.0f} %{}\n",
      h.heads, h.kv_heads, h.dim, m, before, window, time * 1e6, rate * 1e-12,
      100 * rate / kTensorPeak, tiles ? "  (mma)" : "");
}

void bench_sampling(int64_t vocab, int64_t m, const SamplerOptions& options, const char* name) {
  const Buffer logits = normal_floats(static_cast<uint64_t>(vocab * m), 3);
  const Buffer next(static_cast<uint64_t>(m) * 4),
      states(static_cast<uint64_t>(m) * sizeof(SampleState));
  const std::vector<SampleState> start(static_cast<size_t>(m), sample_state(options, vocab, 0));
  copy_to_device(states.as(), start.data(), states.bytes(), nullptr);
  const SampleScratch scratch(m, vocab);
  SampleCall call;
  call.logits = logits.as<const float>();
  call.ldl = call.vocab = vocab;
  call.m = m;
  call.states = states.as<SampleState>();
  call.draws = options.temperature != 0;
  call.next = next.as<int32_t>();
  const double time = seconds(20, [&](int, Stream stream) { sample(call, scratch, stream); });
  fmt::print("sample {:6} x {:2}  {:28}  {:8.1f} us\n", vocab, m, name, time * 1e6);
}

void bench_rows(int64_t m) {
  const Heads h{32, 8, 128};
  const int64_t width = h.heads * h.dim, kv_width = h.kv_heads * h.dim;
  const KvPool pool(h.kv_heads, h.dim, 64 * 8);
  const Buffer q = normal_floats(static_cast<uint64_t>(m * width));
  const Buffer kv = normal_floats(static_cast<uint64_t>(m * kv_width));
  const Buffer turn = normal_floats(static_cast<uint64_t>(4096 * h.dim / 2), 0.5);
  const Buffer table = filled<int32_t>(64 * 8, [](uint64_t i) { return static_cast<int32_t>(i); });
  const Buffer zeros(static_cast<uint64_t>(m) * 4, true);
  RopeCall call;
  call.q = q.as<float>();
  call.ldq = width;
  call.k = call.v = kv.as<const float>();
  call.ldk = call.ldv = kv_width;
  call.m = m;
  call.heads = h.heads;
  call.cos = call.sin = turn.as<const float>();
  const auto* rows = zeros.as<const int32_t>();
  const double rope = seconds(20, [&](int, Stream stream) {
    rope_and_store(call, pool, {table.as<const int32_t>(), 64}, {rows, rows}, stream);
  });
  const Format& format = get_format("tq4");
  const Buffer codes(1000 * 4096 / 2, true), scales(1000 * 4096 / 32 * 2, true);
  StoredTable stored;
  stored.format = &format;
  stored.rows = 1000;
  stored.cols = 4096;
  stored.pass[0] = {codes.as<const void>(), scales.as<const void>(), nullptr, nullptr, {}};
  const double embedding = seconds(
      20, [&](int, Stream stream) { embed(stored, rows, m, q.as<float>(), width, 1, stream); });
  fmt::print("rows {:5}  rope and store {:6.1f} us  embedding tq4 {:6.1f} us\n", m, rope * 1e6,
             embedding * 1e6);
}

void run() {
  const Heads llama{32, 8, 128};
  for (const int64_t m : {1, 8})
    for (const int64_t context : {512, 4096, 16384, 65536})
      bench_decode(llama, context, m);
  bench_decode(llama, 131072, 1);
  bench_decode(llama, 4096, 16);
  bench_decode(llama, 4096, 64);
  bench_decode({32, 32, 128}, 16384, 1);
  bench_decode({14, 2, 64}, 16384, 1);
  bench_decode({32, 32, 96}, 16384, 1);
  bench_decode({16, 8, 256}, 16384, 1);
  for (const int64_t m : {512, 2048, 4096, 16384})
    bench_gemm(llama, m, 0, 0);
  bench_gemm(llama, 2048, 14336, 0);
  bench_gemm(llama, 8192, 0, 1024);
  bench_gemm({32, 8, 64}, 4096, 0, 0);
  bench_gemm({32, 32, 96}, 4096, 0, 0);
  bench_gemm(llama, 4096, 0, 0, true);
  bench_gemm({32, 8, 64}, 4096, 0, 0, true);
  bench_gemm({32, 32, 96}, 4096, 0, 0, true);
  bench_gemm({16, 8, 256}, 4096, 0, 0);
  for (const int64_t m : {1, 8}) {
    bench_sampling(128256, m, {.temperature = 0}, "greedy");
    bench_sampling(128256, m, {}, "defaults");
    bench_sampling(128256, m, {.top_k = 0}, "top_k 0");
    bench_sampling(128256, m, {.top_k = 0, .min_p = 0}, "top_k 0, min_p 0");
    bench_sampling(128256, m, {.top_k = 0, .top_p = 1, .min_p = 0}, "all tokens");
  }
  for (const int64_t m : {1, 16, 4096})
    bench_rows(m);
}

}  // namespace
}  // namespace walsh::cuda

int main() {
  if (walsh::cuda::devices().empty()) {
    fmt::print("no CUDA device: {}\n", walsh::cuda::unavailable_reason());
    return 1;
  }
  walsh::cuda::run();
}
