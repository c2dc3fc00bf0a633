// Compares attention over coded caches with fp16, with cold caches, and measures the operations
// around it. Times are medians of graph replays; decode goes through the caches of many layers in
// turn.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "cache/cuda/coded_cache.h"
#include "device_timing.h"

namespace walsh::cuda {
namespace {

const std::vector<const char*> kTypes = {"f16", "q8_0", "q4_0", "kt4", "tq3_0", "kt2"};

CacheTypes types_of(const char* name) {
  return {&get_cache_type(name), &get_cache_type(name), 32};
}

// Fills all tiles with random codes and scales of 1 / 8. Some are made on the host and copied
// repeatedly.
void fill_tiles(const CodedSide& side, int64_t tiles, int head_dim) {
  Random random(3);
  const auto bytes = static_cast<uint64_t>(side.tile_bytes), all = static_cast<uint64_t>(tiles);
  const auto codes = static_cast<uint64_t>(kCacheTile * head_dim * side.bits / 8);
  const uint64_t some = std::min<uint64_t>(all, 64);
  std::vector<uint8_t> host(some * bytes);
  for (uint64_t i = 0; i < host.size(); ++i) {
    const bool code = i % bytes < codes;
    host[i] = static_cast<uint8_t>(code ? random.next() : i % 2 == 0 ? 0 : 0x30);
  }
  copy_to_device(side.tiles, host.data(), host.size(), nullptr);
  for (uint64_t at = some; at < all; at *= 2)
    copy_on_device(side.tiles + at * bytes, side.tiles, std::min(at, all - at) * bytes, nullptr);
}

// Describes rows at the ends of m sequences of `context` positions.
struct Rows {
  Heads heads;
  int64_t context, m, per_sequence;
  Buffer table, positions, sequences, kept, q, out;
  AttentionScratch scratch;

  Rows(const Heads& h, int64_t length, int64_t count)
      : heads(h),
        context(length),
        m(count),
        per_sequence((length + kPageTokens - 1) / kPageTokens),
        table(filled<int32_t>(pages(), [](uint64_t i) { return static_cast<int32_t>(i); })),
        positions(
            filled<int32_t>(rows(), [&](uint64_t) { return static_cast<int32_t>(length - 1); })),
        sequences(filled<int32_t>(rows(), [](uint64_t i) { return static_cast<int32_t>(i); })),
        kept(rows() * 4, true),
        q(normal_floats(rows() * width())),
        out(rows() * width() * 4),
        scratch(m, h.heads, h.kv_heads, h.dim) {}

  uint64_t rows() const { return static_cast<uint64_t>(m); }
  uint64_t pages() const { return static_cast<uint64_t>(m * per_sequence); }
  uint64_t width() const { return static_cast<uint64_t>(heads.heads * heads.dim); }
  PageTable pages_of() const { return {table.as<const int32_t>(), per_sequence}; }
  RowPlaces places() const {
    return {positions.as<const int32_t>(), sequences.as<const int32_t>()};
  }
  AttentionRows call() const {
    AttentionRows call;
    call.rows = places();
    call.m = m;
    call.heads = heads.heads;
    call.options.scale = static_cast<float>(1 / std::sqrt(heads.dim));
    call.q = q.as<const float>();
    call.ldq = call.ldo = static_cast<int64_t>(width());
    call.out = out.as<float>();
    return call;
  }
};

int layers_of(uint64_t layer_bytes) {
  return static_cast<int>(std::clamp<uint64_t>(kColdBytes / layer_bytes + 1, 2, 300));
}

double half_seconds(const Rows& rows) {
  const uint64_t bytes =
      KvPool::bytes(rows.heads.kv_heads, rows.heads.dim, rows.m * rows.per_sequence);
  std::vector<KvPool> pools;
  const Buffer data = normal_halves(bytes / 4);
  for (int i = 0; i < layers_of(bytes); ++i) {
    const KvPool& pool =
        pools.emplace_back(rows.heads.kv_heads, rows.heads.dim, rows.m * rows.per_sequence);
    for (const Buffer* side : {&pool.keys, &pool.values})
      copy_on_device(side->as(), data.as(), data.bytes(), nullptr);
  }
  return seconds(static_cast<int>(pools.size()), [&](int i, Stream stream) {
    attend_decode({rows.call(), &pools[static_cast<size_t>(i)], rows.pages_of()}, rows.context,
                  rows.scratch, stream);
  });
}

std::vector<CodedLayer> coded_layers(const Rows& rows, const CacheTypes& types) {
  const int kv_heads = rows.heads.kv_heads, dim = rows.heads.dim;
  const auto pages = static_cast<int64_t>(rows.pages());
  const uint64_t bytes = CodedLayer::bytes(types, kv_heads, dim, pages, rows.m);
  std::vector<CodedLayer> layers;
  for (int i = 0; i < layers_of(bytes); ++i) {
    const CodedView view =
        layers.emplace_back(types, kv_heads, dim, pages, rows.m).view({}, nullptr);
    for (const CodedSide* side : {&view.keys, &view.values})
      fill_tiles(*side, pages * kv_heads * kPageTiles, dim);
  }
  return layers;
}

double coded_seconds(const Rows& rows, const CacheTypes& types) {
  std::vector<CodedView> views;
  const std::vector<CodedLayer> layers = coded_layers(rows, types);
  for (const CodedLayer& layer : layers)
    views.push_back(layer.view(rows.pages_of(), rows.kept.as<const int32_t>()));
  return seconds(static_cast<int>(views.size()), [&](int i, Stream stream) {
    attend_decode({rows.call(), &views[static_cast<size_t>(i)]}, rows.context, rows.scratch,
                  stream);
  });
}

void bench_decode(const Heads& h, int64_t context, int64_t m,
                  const std::vector<const char*>& names = kTypes) {
  const Rows rows(h, context, m);
  double half = 0;
  for (const char* name : names) {
    const CacheTypes types = types_of(name);
    const double time = types.coded() ? coded_seconds(rows, types) : half_seconds(rows);
    if (!types.coded()) half = time;
    const double bits = 2 * cache_bits(*types.keys, h.dim);
    const double bytes = static_cast<double>(m * h.kv_heads * h.dim * context) * bits / 8;
    fmt::print(
        "decode {:2}/{} x {:3}  batch {:2}  context {:6}  {:6}  {:8.1f} us  {:5.2f} TB/s  "
        "f16 / it {:4.2f}\n",
        h.heads, h.kv_heads, h.dim, m, context, name, time * 1e6, bytes / time * 1e-12,
        half / time);
  }
}

// Measures a step's append without storing, and a prompt of m rows after `before` positions.
void bench_programs(const Heads& h, const char* name, int64_t m, int64_t before) {
  const CacheTypes types = types_of(name);
  const Rows rows(h, before + m, 1);
  const CodedLayer layer(types, h.kv_heads, h.dim, static_cast<int64_t>(rows.pages()), 1);
  const CodedView view = layer.view(rows.pages_of(), rows.kept.as<const int32_t>());
  fill_tiles(view.keys, static_cast<int64_t>(rows.pages()) * h.kv_heads * kPageTiles, h.dim);
  fill_tiles(view.values, static_cast<int64_t>(rows.pages()) * h.kv_heads * kPageTiles, h.dim);
  const auto count = static_cast<uint64_t>(m);
  const auto kv_width = static_cast<uint64_t>(h.kv_heads * h.dim);
  const Buffer positions = filled<int32_t>(
      count, [&](uint64_t i) { return static_cast<int32_t>(before) + static_cast<int32_t>(i); });
  const Buffer sequences(count * 4, true);
  const Buffer q = normal_floats(count * rows.width()), kv = normal_floats(count * kv_width);
  const Buffer out(count * rows.width() * 4);
  const Buffer turn = normal_floats(static_cast<uint64_t>((before + m) * h.dim / 2), 0.5);
  RopeCall rope;
  rope.q = q.as<float>();
  rope.ldq = static_cast<int64_t>(rows.width());
  rope.k = rope.v = kv.as<const float>();
  rope.ldk = rope.ldv = static_cast<int64_t>(kv_width);
  rope.m = m;
  rope.heads = h.heads;
  rope.cos = rope.sin = turn.as<const float>();
  const RowPlaces places{positions.as<const int32_t>(), sequences.as<const int32_t>()};
  const int64_t fresh_rows = m + 96, old_rows = before + m;
  const Buffer fresh_data = normal_halves(2 * static_cast<uint64_t>(fresh_rows) * kv_width);
  const Buffer old_data = normal_halves(2 * static_cast<uint64_t>(old_rows) * kv_width);
  const auto rows_in = [&](const Buffer& data, int64_t capacity, int first) {
    auto* keys = data.as<uint16_t>();
    return FreshRows{keys, keys + data.bytes() / 4, capacity, first};
  };
  const auto bundle = [](int64_t position) { return static_cast<int>(position / kCacheBundle); };
  const int stored = bundle(std::max<int64_t>(0, before - 32)), end = bundle(before + m - 33);
  const FreshRows fresh = rows_in(fresh_data, fresh_rows, stored * kCacheBundle);
  const FreshRows old = rows_in(old_data, old_rows, 0);
  AttentionRows call = rows.call();
  call.rows = places;
  call.m = m;
  call.q = q.as<const float>();
  call.out = out.as<float>();
  const double keep = seconds(
      8, [&](int, Stream s) { keep_rows(rope, view, places, m > 1 ? &fresh : nullptr, s); });
  const double store = seconds(8, [&](int, Stream s) {
    if (m > 1) {
      store_bundles(view, {0, stored, end}, fresh, s);
    } else {
      store_bundles(view, places, m, s);
    }
  });
  fmt::print("{:6}  {:5} rows after {:6}  keep {:6.1f} us  store {:7.1f} us", name, m, before,
             keep * 1e6, store * 1e6);
  if (m > 1) {
    const double load = seconds(4, [&](int, Stream s) { load_bundles(view, {0, 0, end}, old, s); });
    const double attend = seconds(4, [&](int, Stream s) {
      attend_prefill({call, &view}, fresh, old, static_cast<int>(before), s);
    });
    fmt::print("  load {:7.1f} us  attention {:8.1f} us", load * 1e6, attend * 1e6);
  }
  fmt::print("\n");
}

void run() {
  const Heads llama{32, 8, 128};
  for (const int64_t context : {1024, 4096, 16384, 65536, 131072})
    bench_decode(llama, context, 1);
  bench_decode(llama, 4096, 16);
  bench_decode(llama, 16384, 8);
  bench_decode({14, 2, 64}, 16384, 1);
  bench_decode({16, 8, 256}, 16384, 1);
  for (const char* name : {"tq3_0", "kt4", "q8_0"}) {
    bench_programs(llama, name, 1, 4000);
    bench_programs(llama, name, 4096, 0);
    bench_programs(llama, name, 512, 65536);
  }
}

}  // namespace
}  // namespace walsh::cuda

// Without arguments all benchmarks run; with a type and a context only decode of one row does.
int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (walsh::cuda::devices().empty()) {
    fmt::print("no CUDA device: {}\n", walsh::cuda::unavailable_reason());
    return 1;
  }
  if (argc == 3) {
    walsh::cuda::bench_decode({32, 8, 128}, std::stoll(argv[2]), 1, {argv[1]});
  } else {
    walsh::cuda::run();
  }
}
