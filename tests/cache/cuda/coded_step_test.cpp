// Tests attention to a coded cache in the persistent kernel against the single launches.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "cache/cuda/coded_cache.h"
#include "kernels/cuda/step_data.h"

namespace walsh::cuda {
namespace {

constexpr int kSequence = 1;

struct Heads {
  const char* type;
  int dim, heads, kv_heads;
  int64_t exact = 32, window = 0;
  bool norms = false, sinks = false;
  int64_t chunk = 0;
};

// Holds a sequence in a layer's cache, and what its next row is made of.
class Sequence {
 public:
  Sequence(const Heads& h, int length)
      : h_(h),
        length_(length),
        types_{&get_cache_type(h.type), &get_cache_type(h.type), h.exact},
        per_sequence_((length + kPageTokens - 1) / kPageTokens + 1),
        layer_(types_, h.kv_heads, h.dim, 2 * per_sequence_, 2) {
    std::vector<int32_t> table(static_cast<size_t>(2 * per_sequence_)), at, of;
    for (size_t i = 0; i < table.size(); ++i)
      table[i] = static_cast<int32_t>(table.size() - 1 - i);
    for (int i = 0; i < length; ++i) {
      at.push_back(i);
      of.push_back(kSequence);
    }
    table_ = to_device(table);
    kept_ = to_device(std::vector<int32_t>{0, 0});
    positions_ = to_device(at);
    sequences_ = to_device(of);
    q_ = to_device(random_values(length * width(), 20));
    k_ = to_device(random_values(length * kv_width(), 21));
    v_ = to_device(random_values(length * kv_width(), 22));
    cos_ = to_device(random_values(length * h.dim / 2, 23, 0.7));
    sin_ = to_device(random_values(length * h.dim / 2, 24, 0.7));
    q_norm_ = to_device(random_values(h.dim, 25));
    k_norm_ = to_device(random_values(h.dim, 26));
    sinks_ = to_device(random_values(h.heads, 29, 4));
    view = layer_.view({table_.as<int32_t>(), per_sequence_}, kept_.as<int32_t>());
    read_all_but_one();
  }

  int64_t width() const { return int64_t{h_.heads} * h_.dim; }
  int64_t kv_width() const { return int64_t{h_.kv_heads} * h_.dim; }
  // Returns the call for rows from `first` on.
  RopeCall rope(int64_t first, int64_t m) const {
    RopeCall call{q_.as<float>() + first * width(),
                  width(),
                  k_.as<float>() + first * kv_width(),
                  kv_width(),
                  v_.as<float>() + first * kv_width(),
                  kv_width(),
                  m,
                  h_.heads};
    call.q_norm = h_.norms ? q_norm_.as<float>() : nullptr;
    call.k_norm = h_.norms ? k_norm_.as<float>() : nullptr;
    call.eps = 1e-6f;
    call.cos = cos_.as<float>();
    call.sin = sin_.as<float>();
    return call;
  }
  RopeCall last() const { return rope(length_ - 1, 1); }
  RowPlaces place() const { return places().from(length_ - 1); }
  AttentionRows attention(float* out) const {
    AttentionRows call;
    call.rows = place();
    call.m = 1;
    call.heads = h_.heads;
    call.options.window = h_.window;
    call.options.chunk = h_.chunk;
    call.options.scale = 1 / std::sqrt(static_cast<float>(h_.dim));
    if (h_.sinks) call.sinks = sinks_.as<float>();
    call.q = last().q;
    call.out = out;
    call.ldq = call.ldo = width();
    return call;
  }
  // Returns the bundle that leaves the window, or -1.
  int due() const { return stored(length_) > stored(length_ - 1) ? stored(length_ - 1) / 32 : -1; }
  // Returns all that a row may change.
  std::vector<uint16_t> content() const {
    std::vector<uint16_t> all;
    for (const CodedSide* side : {&view.keys, &view.values}) {
      for (const auto& [from, bytes] :
           {std::pair<const void*, int64_t>{side->ring, 2 * kv_width() * view.ring * 2},
            {side->tiles, 2 * per_sequence_ * h_.kv_heads * kPageTiles * side->tile_bytes}}) {
        std::vector<uint16_t> part(static_cast<size_t>(bytes / 2));
        copy_to_host(part.data(), from, static_cast<uint64_t>(bytes), nullptr);
        all.insert(all.end(), part.begin(), part.end());
      }
    }
    return all;
  }

  CodedView view;

 private:
  RowPlaces places() const { return {positions_.as<int32_t>(), sequences_.as<int32_t>()}; }
  int stored(int length) const {
    return length == 0 ? 0 : stored_positions(0, length - 1, view.window);
  }

  // Reads the prompt.
  void read_all_but_one() {
    // Nothing has been written behind the rows that are read.
    for (const CodedSide* side : {&view.keys, &view.values}) {
      copy_to_device(side->ring, std::vector<uint16_t>(2 * kv_width() * view.ring, 0x7e00).data(),
                     static_cast<uint64_t>(2 * kv_width() * view.ring * 2), nullptr);
      const int64_t tiles = 2 * per_sequence_ * h_.kv_heads * kPageTiles * side->tile_bytes;
      copy_to_device(side->tiles, std::vector<uint8_t>(static_cast<size_t>(tiles), 0xff).data(),
                     static_cast<uint64_t>(tiles), nullptr);
    }
    const int end = length_ - 1;
    if (end == 0) return;
    const Buffer rows(static_cast<uint64_t>(2 * end * kv_width() * 2));
    FreshRows fresh;
    fresh.keys = rows.as<uint16_t>();
    fresh.values = fresh.keys + end * kv_width();
    fresh.capacity = end;
    const Buffer queries = to_device(random_values(length_ * width(), 20));
    RopeCall call = rope(0, end);
    call.q = queries.as<float>();  // the row's own ones stay as they are
    keep_rows(call, view, places(), &fresh, nullptr);
    store_bundles(view, {kSequence, 0, stored(end) / 32}, fresh, nullptr);
    copy_to_ring(view, kSequence, stored(end), end, fresh, nullptr);
    synchronize(nullptr);
  }

  const Heads h_;
  const int length_;
  const CacheTypes types_;
  const int64_t per_sequence_;
  CodedLayer layer_;
  Buffer table_, kept_, positions_, sequences_, q_, k_, v_, cos_, sin_, q_norm_, k_norm_, sinks_;
};

// The program's other phase is a product of what attention gives. Levels of keys are bytes there.
void expect_step(const Heads& h, int length) {
  SCOPED_TRACE(testing::Message() << h.type << " head_dim " << h.dim << " heads " << h.heads << "/"
                                  << h.kv_heads << " exact " << h.exact << " window " << h.window
                                  << " length " << length);
  const AttentionScratch scratch(16, h.heads, h.kv_heads, h.dim);
  const int64_t width = int64_t{h.heads} * h.dim, rows = 2500;
  const Format& format = get_format("tq3");
  const auto weights = upload_passes(format, rows, width, 27);
  const Forms forms(format, width);
  const Buffer attended(static_cast<uint64_t>(width) * 4), y(static_cast<uint64_t>(rows) * 4);
  const Matmul product = forms.product(weights, y.as<float>());
  const InputSource source{attended.as<float>(), nullptr, nullptr, 0, width, width};
  struct Result {
    std::vector<float> attended, product;
    std::vector<uint16_t> content;
  };
  const auto run = [&](bool whole) {
    const Sequence s(h, length);
    const AttentionRows call = s.attention(attended.as<float>());
    if (whole) {
      PersistentProgram program;
      EXPECT_TRUE(
          program.attend_coded(s.last(), call, s.view, s.view.keys, s.view.values, scratch));
      EXPECT_TRUE(program.multiply(source, forms.forms, {&product, 1}));
      EXPECT_TRUE(program.finish());
      const std::vector<CodedLayers> layers = layers_on_device({&s.view, 1});
      if (s.due() >= 0) store_bundle(layers[0], kSequence, s.due(), nullptr);
      program.launch(nullptr);
      program.launch(nullptr);  // finds its counters as the first one did
    } else {
      keep_rows(s.last(), s.view, s.place(), nullptr, nullptr);
      store_bundles(s.view, s.place(), 1, nullptr);
      attend_decode({call, &s.view}, length, scratch, nullptr);
      prepare(source, forms.forms, 1, nullptr);
      gemv({&product, 1}, 1, nullptr);
    }
    return Result{to_host<float>(attended), to_host<float>(y), s.content()};
  };
  const Result got = run(true), expected = run(false);
  EXPECT_LT(relative_error(got.attended, expected.attended),
            std::string(h.type) == "q8_0" ? 4e-3 : 2e-2);
  EXPECT_LT(relative_error(got.product, expected.product), 4e-2);
  ASSERT_EQ(got.content, expected.content);
}

TEST(GpuCodedStep, AttendsAsSingleLaunchesWithEveryType) {
  WALSH_NEED_STEPS();
  for (const char* type : {"tq3_0", "q8_0", "q4_0", "kt4", "kt3", "kt2"}) {
    for (const int length : {1, 2, 16, 33, 65, 66, 97, 129, 300, 1500, 5000}) {
      expect_step({type, 128, 32, 8}, length);
      expect_step({type, 64, 14, 2}, length);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(GpuCodedStep, AttendsAsSingleLaunchesWithEveryOption) {
  WALSH_NEED_STEPS();
  Heads chunks{"tq3_0", 128, 32, 8};
  chunks.chunk = 100;
  for (const Heads& h :
       {Heads{"tq3_0", 128, 8, 8, 0}, Heads{"tq3_0", 128, 24, 2, 100},
        Heads{"kt4", 128, 32, 4, 7, 0, true, true}, Heads{"tq3_0", 64, 16, 4, 32, 100, true},
        chunks, Heads{"q8_0", 128, 16, 2, 600, 700}}) {
    for (const int length : {1, 40, 64, 65, 66, 128, 129, 300, 1500, 5000}) {
      expect_step(h, length);
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace walsh::cuda
