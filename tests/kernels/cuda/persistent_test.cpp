#include "kernels/cuda/persistent/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "codec/kernels.h"
#include "kernels/cuda/rows/query_source.h"
#include "step_data.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

// Checks two products of one input, one with a bias, one added to what is there.
void expect_products(const Format& format, int64_t cols, bool norm) {
  constexpr int64_t kRows[] = {2500, 33};
  const auto a = upload_passes(format, kRows[0], cols, 1), b = upload_passes(format, 33, cols, 2);
  const Buffer x = to_device(random_values(cols, 3)), up = to_device(random_values(cols, 4));
  const Buffer gain = to_device(random_values(cols, 5)), bias = to_device(random_values(2500, 6));
  InputSource source{x.as<float>(), nullptr, gain.as<float>(), 1e-5f, cols, cols};
  if (!norm) {
    source.gain = nullptr;
    source.up = up.as<float>();
  }
  const Forms forms(format, cols);
  const auto run = [&](bool whole) {
    Buffer ya(2500 * 4);
    Buffer yb = to_device(random_values(33, 7));
    Matmul products[] = {forms.product(a, ya.as<float>()), forms.product(b, yb.as<float>())};
    products[0].bias = bias.as<float>();
    products[1].add = true;
    if (whole) {
      PersistentProgram program;
      EXPECT_TRUE(program.multiply(source, forms.forms, products));
      EXPECT_TRUE(program.finish());
      program.launch(nullptr);
    } else {
      prepare(source, forms.forms, 1, nullptr);
      gemv(products, 1, nullptr);
    }
    auto y = to_host<float>(ya);
    const auto rest = to_host<float>(yb);
    y.insert(y.end(), rest.begin(), rest.end());
    return y;
  };
  expect_close(run(true), run(false), 2e-5);
}

// Returns whether rows of trellis codes end with several column blocks: then they have scales per
// 32 columns, which a step has no kernel for.
bool several_blocks_at_the_end(int64_t cols) {
  return cols == 96 || cols == 1376;
}

TEST(GpuPersistent, MultipliesAsSingleLaunchesInEveryFormat) {
  WALSH_NEED_STEPS();
  for (const Format& format : all_formats()) {
    if (format.dense || format.kind == CodeKind::product || format.activation_planes != 1) continue;
    if (!has_kernel(format, Kernel::gpu_products)) continue;
    const bool per_row = format.kind == CodeKind::scalar && format.code[0].group == 0;
    if (format.passes == 2 || per_row) continue;  // a step says no
    for (const int64_t cols : {96, 1376, 4096, 8192, 14336}) {
      if (format.kind == CodeKind::trellis && several_blocks_at_the_end(cols)) continue;
      for (const bool norm : {true, false}) {
        SCOPED_TRACE(std::string(format.name) + " " + std::to_string(cols) +
                     (norm ? " norm" : " gate"));
        expect_products(format, cols, norm);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Checks products of one input in different formats, one with a bias, one added to what is there.
void expect_products_of(std::span<const char* const> names, int64_t cols, bool norm) {
  constexpr int64_t kRows[] = {2500, 33, 900};
  const Buffer x = to_device(random_values(cols, 3)), up = to_device(random_values(cols, 4));
  const Buffer gain = to_device(random_values(cols, 5)), bias = to_device(random_values(2500, 6));
  InputSource source{x.as<float>(), nullptr, gain.as<float>(), 1e-5f, cols, cols};
  if (!norm) {
    source.gain = nullptr;
    source.up = up.as<float>();
  }
  const Forms forms(get_format("tq3"), cols);
  std::vector<std::vector<Matrix>> weights;
  for (size_t i = 0; i < names.size(); ++i)
    weights.push_back(upload_passes(get_format(names[i]), kRows[i], cols, i + 1));
  const auto run = [&](bool whole) {
    std::vector<Buffer> y;
    std::vector<Matmul> products;
    for (size_t i = 0; i < names.size(); ++i) {
      y.push_back(to_device(random_values(kRows[i], 7)));
      products.push_back(forms.product(weights[i], y.back().as<float>()));
    }
    products[0].bias = bias.as<float>();
    products[1].add = true;
    if (whole) {
      PersistentProgram program;
      EXPECT_TRUE(program.multiply(source, forms.forms, products));
      EXPECT_TRUE(program.finish());
      program.launch(nullptr);
    } else {
      prepare(source, forms.forms, 1, nullptr);
      gemv(products, 1, nullptr);
    }
    std::vector<float> all;
    for (const Buffer& result : y) {
      const auto part = to_host<float>(result);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  expect_close(run(true), run(false), 2e-5);
}

TEST(GpuPersistent, MultipliesProductsOfDifferentFormatsAsSingleLaunches) {
  WALSH_NEED_STEPS();
  const std::vector<const char*> mixes[] = {
      {"tq2", "tq3", "tq4"},    {"tc3:h", "tq4", "tc3.5:h"}, {"tc2.5:h", "tc4:h", "tc2:h"},
      {"tq4", "tq2", "tq2"},    {"tq3", "itq3_s"},  // of equal bits
      {"itq3_s", "tq4", "tq2"}, {"itq3_s8", "q4_0", "q8_0"}, {"tq2", "q8_0", "itq3_s8"}};
  for (const auto& names : mixes) {
    const bool trellis = codec_of(get_format(names[0])).slow_to_encode;
    for (const int64_t cols : {96, 1376, 4096, 8192, 14336}) {
      if (trellis && several_blocks_at_the_end(cols)) continue;
      for (const bool norm : {true, false}) {
        SCOPED_TRACE(std::string(names[0]) + " " + names[1] + " " + std::to_string(cols) +
                     (norm ? " norm" : " gate"));
        expect_products_of(names, cols, norm);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Checks layers of a feed-forward by itself against single launches. The formats are of gate and
// up, and of down.
void expect_order(std::array<const char*, 3> names, int64_t width, int64_t inner) {
  constexpr int kLayers = 9;
  const Format& format = get_format(names[0]);
  const auto in = upload_passes(format, inner, width, 11);
  const auto second_in = upload_passes(get_format(names[1]), inner, width, 11);
  const auto out = upload_passes(get_format(names[2]), width, inner, 12);
  const Forms narrow(format, width), wide(format, inner);
  const auto start = random_values(width, 13);
  const Buffer gain = to_device(random_values(width, 14));
  const Buffer x = to_device(start), gate(inner * 4), up(inner * 4);
  const InputSource first{x.as<float>(), nullptr, gain.as<float>(), 1e-5f, width, width};
  const InputSource second{gate.as<float>(), up.as<float>(), nullptr, 0, inner, inner};
  const Matmul ups[] = {narrow.product(in, gate.as<float>()),
                        narrow.product(second_in, up.as<float>())};
  Matmul down = wide.product(out, x.as<float>());
  down.add = true;
  PersistentProgram program;
  for (int layer = 0; layer < kLayers; ++layer) {
    ASSERT_TRUE(program.multiply(first, narrow.forms, ups));
    ASSERT_TRUE(program.multiply(second, wide.forms, {&down, 1}));
  }
  ASSERT_TRUE(program.finish());
  for (int layer = 0; layer < kLayers; ++layer) {
    prepare(first, narrow.forms, 1, nullptr);
    gemv(ups, 1, nullptr);
    prepare(second, wide.forms, 1, nullptr);
    gemv({&down, 1}, 1, nullptr);
  }
  const auto expected = to_host<float>(x);
  std::vector<uint32_t> bits;
  for (int run = 0; run < launches(); ++run) {
    copy_to_device(x.as(), start.data(), x.bytes(), nullptr);
    program.launch(nullptr);
    const auto got = to_host<float>(x);
    if (run == 0) bits = bits_of(got);
    ASSERT_EQ(bits_of(got), bits) << "run " << run;
    // Roundings of int8 inputs differ after the first layer, and grow from layer to layer.
    ASSERT_LT(relative_error(got, expected), 0.05);
  }
}

TEST(GpuPersistent, ProductsThatReadEachOtherAreInOrderEveryTime) {
  WALSH_NEED_STEPS();
  // Inputs are of every block's own with fewer units than warps, of a pair, shared, and of one
  // unit, which leave no pairs.
  const std::pair<int64_t, int64_t> shapes[] = {
      {1536, 640}, {1536, 7680}, {1536, 9216}, {200, 2560}};
  for (const auto& [width, inner] : shapes) {
    const std::array<const char*, 3> mixes[] = {{"itq3_s", "itq3_s", "itq3_s"},
                                                {"q4_0", "q4_0", "q4_0"},
                                                {"tq3", "tq3", "tq4"},
                                                {"tq2", "tq4", "tq3"},
                                                {"itq3_s8", "tq2", "q4_0"}};
    for (const auto& names : mixes) {
      SCOPED_TRACE(std::string(names[0]) + " " + names[1] + " " + names[2] + " " +
                   std::to_string(width) + " " + std::to_string(inner));
      expect_order(names, width, inner);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Nothing orders these products but the places of their inputs.
TEST(GpuPersistent, ProductsOfOneInputDoNotOvertakeEachOther) {
  WALSH_NEED_STEPS();
  constexpr int64_t kRows = 2500;
  constexpr int kProducts = 12;
  const Format& format = get_format("tq3");
  for (const int64_t cols : {200, 512, 768}) {
    SCOPED_TRACE(cols);
    const auto weights = upload_passes(format, kRows, cols, 15);
    const Buffer x = to_device(random_values(cols, 16));
    const InputSource source{x.as<float>(), nullptr, nullptr, 0, cols, cols};
    const Forms forms(format, cols);
    std::vector<Buffer> y;
    PersistentProgram program;
    for (int i = 0; i < kProducts; ++i) {
      const Matmul product = forms.product(weights, y.emplace_back(kRows * 4).as<float>());
      ASSERT_TRUE(program.multiply(source, forms.forms, {&product, 1}));
    }
    ASSERT_TRUE(program.finish());
    const Buffer alone(kRows * 4);
    const Matmul product = forms.product(weights, alone.as<float>());
    prepare(source, forms.forms, 1, nullptr);
    gemv({&product, 1}, 1, nullptr);
    const auto expected = to_host<float>(alone);
    for (int run = 0; run < launches(); ++run) {
      program.launch(nullptr);
      for (const Buffer& result : y) {
        expect_close(to_host<float>(result), expected, 2e-5);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

struct Heads {
  int dim, heads, kv_heads;
  int64_t window;
  bool norms;
  bool rope = true, factors = false;  // of queries
  bool gated = false;
  int rotated = 0;  // values of a head; 0: all
  int64_t chunk = 0;
  bool sinks = false;
};

// Checks one row at the end of a sequence whose pages are scattered; the program's other phase is a
// product of what attention gives, of which every block has some of the `rows`.
void expect_attention(const Heads& h, int64_t length, int64_t rows) {
  SCOPED_TRACE(testing::Message() << "head_dim " << h.dim << " heads " << h.heads << "/"
                                  << h.kv_heads << " window " << h.window << " length " << length
                                  << (h.gated ? " gated" : "") << " rotated " << h.rotated
                                  << " chunk " << h.chunk << (h.sinks ? " sinks" : ""));
  const int64_t per_sequence = (length + kPageTokens - 1) / kPageTokens + 1;
  const int64_t width = h.heads * h.dim, kv_width = h.kv_heads * h.dim;
  const int64_t turned = (h.rotated == 0 ? h.dim : h.rotated) / 2;
  const int64_t query_step = h.gated ? 2 * h.dim : h.dim;
  std::vector<int32_t> table(static_cast<size_t>(2 * per_sequence));
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = static_cast<int32_t>((i * 7 + 3) % table.size());
  if (table.size() % 7 == 0) std::reverse(table.begin(), table.end());
  const KvPool shape(h.kv_heads, h.dim, static_cast<int64_t>(table.size()));
  std::vector<uint16_t> keys(shape.keys.bytes() / 2), values(keys.size());
  Random random(static_cast<uint64_t>(length * 31 + h.dim));
  for (uint16_t& v : keys)
    v = f32_to_f16(static_cast<float>(random.normal()));
  for (uint16_t& v : values)
    v = f32_to_f16(static_cast<float>(random.normal()));
  const Buffer pages = to_device(table);
  const Buffer position = to_device(std::vector<int32_t>{static_cast<int32_t>(length - 1)});
  const Buffer sequence = to_device(std::vector<int32_t>{1});
  const Buffer k = to_device(random_values(kv_width, 21)),
               v = to_device(random_values(kv_width, 22));
  const Buffer cos = to_device(random_values(length * turned, 23, 0.7));
  const Buffer sin = to_device(random_values(length * turned, 24, 0.7));
  const Buffer q_norm = to_device(random_values(h.dim, 25)),
               k_norm = to_device(random_values(h.dim, 26));
  const Buffer factors = to_device(random_values(length, 28));
  const Buffer sinks = to_device(random_values(h.heads, 29, 4));
  const AttentionScratch scratch(16, h.heads, h.kv_heads, h.dim);
  const Format& format = get_format("tq3");
  const auto weights = upload_passes(format, rows, width, 27);
  const Forms forms(format, width);

  struct Result {
    std::vector<float> attended, product;
    std::vector<uint16_t> keys, values;
  };
  const auto run = [&](bool whole) {
    KvPool pool = shape;
    pool.keys = to_device(keys);
    pool.values = to_device(values);
    const Buffer from = to_device(random_values(h.heads * query_step, 20));
    const Buffer q(static_cast<uint64_t>(width) * 4);
    Buffer attended(static_cast<uint64_t>(width) * 4), y(static_cast<uint64_t>(rows) * 4);
    RopeCall rope{q.as<float>(), width, k.as<float>(), kv_width, v.as<float>(),
                  kv_width,      1,     h.heads};
    rope.q_norm = h.norms ? q_norm.as<float>() : nullptr;
    rope.k_norm = h.norms ? k_norm.as<float>() : nullptr;
    rope.eps = 1e-6f;
    rope.rotated = h.rotated;
    rope.cos = h.rope ? cos.as<float>() : nullptr;
    rope.sin = h.rope ? sin.as<float>() : nullptr;
    rope.q_scale = h.factors ? factors.as<float>() : nullptr;
    AttentionCall call;
    call.cache = &pool;
    call.table = {pages.as<int32_t>(), per_sequence};
    call.rows = {position.as<int32_t>(), sequence.as<int32_t>()};
    call.m = 1;
    call.heads = h.heads;
    call.options.window = h.window;
    call.options.chunk = h.chunk;
    call.options.scale = 1 / std::sqrt(static_cast<float>(h.dim));
    if (h.sinks) call.sinks = sinks.as<float>();
    call.q = q.as<float>();
    call.out = attended.as<float>();
    call.ldq = call.ldo = width;
    const InputSource source{attended.as<float>(), nullptr, nullptr, 0, width, width};
    const Matmul product = forms.product(weights, y.as<float>());
    if (whole) {
      PersistentProgram program;
      rope.q = from.as<float>();
      EXPECT_TRUE(program.attend(rope, call, scratch, h.gated));
      EXPECT_TRUE(program.multiply(source, forms.forms, {&product, 1}));
      EXPECT_TRUE(program.finish());
      program.launch(nullptr);
      program.launch(nullptr);  // finds its counters as the first one did
    } else {
      const QuerySource queries{from.as<float>(), h.heads * query_step, query_step};
      rope_and_store(rope, queries, pool, call.table, call.rows, nullptr);
      attend_decode(call, length, scratch, nullptr);
      const HeadGates gates{from.as<float>() + h.dim, 0, query_step, nullptr, 0, h.dim};
      if (h.gated) gate_heads(call.out, gates, 1, h.heads, nullptr);
      prepare(source, forms.forms, 1, nullptr);
      gemv({&product, 1}, 1, nullptr);
    }
    return Result{to_host<float>(attended), to_host<float>(y), to_host<uint16_t>(pool.keys),
                  to_host<uint16_t>(pool.values)};
  };
  const Result got = run(true), expected = run(false);
  expect_close(got.attended, expected.attended, 4e-3);  // weights of the softmax are fp16
  ASSERT_EQ(got.keys, expected.keys);
  ASSERT_EQ(got.values, expected.values);
  expect_close(got.product, expected.product, 3e-2);
}

TEST(GpuPersistent, AttendsAsSingleLaunches) {
  WALSH_NEED_STEPS();
  for (const Heads& h :
       {Heads{128, 32, 8, 0, false}, Heads{128, 8, 8, 0, true}, Heads{64, 14, 2, 0, false},
        Heads{128, 24, 2, 0, true}, Heads{64, 16, 4, 100, true}, Heads{128, 16, 2, 700, false},
        Heads{128, 16, 4, 0, true, false}, Heads{64, 16, 4, 0, false, false},
        Heads{128, 32, 8, 0, false, true, true}}) {
    for (const int64_t length : {1, 2, 16, 17, 64, 65, 300, 1500, 5000}) {
      expect_attention(h, length, length == 17 || length == 1500 ? 2500 : 40);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(GpuPersistent, AttendsInChunksAndWithSinksAsSingleLaunches) {
  WALSH_NEED_STEPS();
  Heads chunks{128, 32, 8, 0, true}, both{64, 16, 4, 60, false}, sinks{64, 14, 2, 0, false},
      split{128, 8, 8, 700, true};
  chunks.chunk = 100;
  both.chunk = 256;
  sinks.sinks = split.sinks = both.sinks = true;
  for (const Heads& h : {chunks, both, sinks, split}) {
    for (const int64_t length : {1, 2, 16, 17, 64, 65, 300, 1500, 5000}) {
      expect_attention(h, length, length == 17 || length == 1500 ? 2500 : 40);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Heads have 256 values and gates behind their queries, and a part of them is rotated, as hybrids
// have them; then only one of these at a time.
TEST(GpuPersistent, AttendsWithGatesAndPartsOfHeadsAsSingleLaunches) {
  WALSH_NEED_STEPS();
  for (const Heads& h :
       {Heads{256, 16, 4, 0, true, true, false, true, 64},
        Heads{256, 16, 2, 0, true, true, false, true, 64}, Heads{256, 8, 8, 300, false},
        Heads{256, 24, 2, 0, true, false}, Heads{128, 32, 8, 0, true, true, true, true},
        Heads{128, 16, 2, 0, false, true, false, false, 96},
        Heads{64, 4, 2, 0, true, true, false, true, 16},
        Heads{64, 16, 4, 0, false, false, false, true}}) {
    for (const int64_t length : {1, 2, 16, 17, 64, 65, 300, 1500, 5000}) {
      expect_attention(h, length, length == 17 || length == 1500 ? 2500 : 40);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(GpuPersistent, SaysNoToWhatNoStepCanDo) {
  WALSH_NEED_STEPS();
  const Format& format = get_format("tq3");
  const auto weights = upload_passes(format, 32, 512, 31);
  const Buffer x = to_device(random_values(512, 33));
  Buffer y(32 * 4);
  const InputSource source{x.as<float>(), nullptr, nullptr, 0, 512, 512};
  Forms forms(format, 512);
  const Matmul product = forms.product(weights, y.as<float>());
  const Format& full = get_format("tq3:full");
  const auto rows = upload_passes(full, 32, 512, 34);
  const Matmul per_row = forms.product(rows, y.as<float>());
  PersistentProgram scales;
  EXPECT_FALSE(scales.multiply(source, forms.forms, {&per_row, 1}));
  forms.forms[0].rotation.block = 512;
  PersistentProgram block;
  EXPECT_FALSE(block.multiply(source, forms.forms, {&product, 1}));
  InputSource gelu = source;
  gelu.up = x.as<float>();
  gelu.function = GateFunction::gelu_tanh;
  PersistentProgram gate;
  EXPECT_FALSE(gate.multiply(gelu, Forms(format, 512).forms, {&product, 1}));
  PersistentProgram empty;
  EXPECT_THROW(empty.finish(), Error);
}

TEST(GpuPersistent, SaysNoToAttentionThatNoStepCanDo) {
  WALSH_NEED_STEPS();
  const KvPool pool(1, 64, 1);
  const AttentionScratch scratch(1, 2, 1, 64);
  const Buffer values(4096);
  auto* at = values.as<float>();  // queries, then keys, values and results
  AttentionCall whole;
  whole.cache = &pool;
  whole.m = 1;
  whole.heads = 2;
  whole.q = at;
  whole.out = at + 256;
  whole.ldq = whole.ldo = 128;
  RopeCall rope{at, 128, at + 128, 64, at + 192, 64, 1, 2};
  rope.cos = rope.sin = at + 512;
  const auto attends = [&](const RopeCall& placed, const AttentionCall& call) {
    return PersistentProgram().attend(placed, call, scratch);
  };
  AttentionCall capped = whole;
  capped.options.logit_cap = 50;
  EXPECT_FALSE(attends(rope, capped));
  RopeCall part = rope;
  part.rotated = 32;
  EXPECT_TRUE(attends(part, whole));
  part.rotated = 64;
  EXPECT_TRUE(attends(part, whole));
  part.cos = part.sin = nullptr;
  EXPECT_TRUE(attends(part, whole)) << "without rope";
}

}  // namespace
}  // namespace walsh::cuda
