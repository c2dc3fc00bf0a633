// Tests the persistent kernel for several rows, run unchanged on the host (emulated/device.h).
// Programs of products are compared with their definition, each row for itself.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
//
#include "kernels/emulated/device.h"
//
#include "kernels/emulated/program_data.h"
//
#include "kernels/cuda/launch.h"
#include "kernels/cuda/persistent/program.h"

namespace walsh::cuda {
namespace {

struct Widths {
  int64_t hidden, mixed, gated;
};

// Computes a layer: mixed = W norm(x), x += V mixed, x += D (silu(G norm(x)) * U norm(x)).
struct DenseLayer {
  Form into_mixed, into_x, into_gates, into_down;
  Coded mixes, adds, gate, up, down;
  std::vector<float> mixed_gain, gain;
  Buffer device_mixed_gain, device_gain;

  DenseLayer(Random& random, const Widths& w, int64_t rows, uint32_t seed)
      : into_mixed(w.hidden, seed, rows),
        into_x(w.mixed, seed + 1, rows),
        into_gates(w.hidden, seed + 2, rows),
        into_down(w.gated, seed + 3, rows),
        mixes(random, w.mixed, w.hidden),
        adds(random, w.hidden, w.mixed),
        gate(random, w.gated, w.hidden),
        up(random, w.gated, w.hidden),
        down(random, w.hidden, w.gated),
        mixed_gain(random_values(random, w.hidden)),
        gain(random_values(random, w.hidden)),
        device_mixed_gain(to_device(mixed_gain)),
        device_gain(to_device(gain)) {}

  void run(std::vector<float>& x) const {
    const auto mixed = mixes.times(into_mixed.of(normed(x, mixed_gain)));
    add(x, adds.times(into_x.of({mixed.begin(), mixed.end()})), 1);
    const std::vector<float> input = into_gates.of(normed(x, gain));
    const auto g = gate.times(input), u = up.times(input);
    std::vector<float> h;
    for (size_t i = 0; i < g.size(); ++i)
      h.push_back(static_cast<float>(g[i] / (1 + std::exp(-g[i])) * u[i]));
    add(x, down.times(into_down.of(h)), 1);
  }
};

// Holds the arrays of several rows, each of which is longer than its values.
struct Rows {
  int64_t width, ld;
  Buffer values;

  Rows(int64_t row_width, int64_t rows)
      : width(row_width), ld(row_width + 32), values(static_cast<uint64_t>(rows * ld) * 4, true) {}
  float* row(int64_t i = 0) const { return values.as<float>() + i * ld; }
  InputSource source(const float* gain = nullptr) const {
    return {row(), nullptr, gain, kEps, ld, width};
  }
  Matmul product(const Coded& matrix, const Form& form, bool adds) const {
    Matmul product = product_of(matrix, form);
    product.y = row();
    product.ldy = ld;
    product.add = adds;
    return product;
  }
};

struct Arrays {
  Rows x, mixed, gate, up;
  Arrays(const Widths& w, int64_t rows)
      : x(w.hidden, rows), mixed(w.mixed, rows), gate(w.gated, rows), up(w.gated, rows) {}
};

bool add_layer(PersistentProgram& program, DenseLayer& layer, const Arrays& a) {
  const auto multiply = [&](const InputSource& source, Form& form,
                            std::initializer_list<Matmul> products) {
    const InputForm described = form.described();
    return program.multiply(source, {&described, 1}, {products.begin(), products.size()});
  };
  InputSource gated = a.gate.source();
  gated.up = a.up.row();
  return multiply(a.x.source(layer.device_mixed_gain.as<float>()), layer.into_mixed,
                  {a.mixed.product(layer.mixes, layer.into_mixed, false)}) &&
         multiply(a.mixed.source(), layer.into_x, {a.x.product(layer.adds, layer.into_x, true)}) &&
         multiply(a.x.source(layer.device_gain.as<float>()), layer.into_gates,
                  {a.gate.product(layer.gate, layer.into_gates, false),
                   a.up.product(layer.up, layer.into_gates, false)}) &&
         multiply(gated, layer.into_down, {a.x.product(layer.down, layer.into_down, true)});
}

// Runs several layers and launches, with and without pairs of blocks, which give the same bits.
void expect_rows(const Widths& w, int room, int rows, int layers, int processors) {
  emulated::multiprocessors = processors;
  Random random(9);
  std::vector<DenseLayer> all;
  for (int i = 0; i < layers; ++i)
    all.emplace_back(random, w, room, static_cast<uint32_t>(100 * i));
  std::vector<std::vector<float>> start, expected;
  for (int row = 0; row < rows; ++row) {
    start.push_back(random_values(random, w.hidden, row + 1));
    expected.push_back(start.back());
    for (const DenseLayer& layer : all)
      layer.run(expected.back());
  }
  std::vector<std::vector<float>> first;
  for (const bool pairs : {true, false}) {
    SCOPED_TRACE(pairs ? "pairs" : "single blocks");
    emulated::has_clusters = pairs;
    const Arrays arrays(w, room);
    PersistentProgram program(room);
    for (DenseLayer& layer : all)
      ASSERT_TRUE(add_layer(program, layer, arrays));
    ASSERT_TRUE(program.finish());
    for (int launch = 0; launch < (pairs ? 2 : 1); ++launch) {  // of other tags
      for (int row = 0; row < rows; ++row)
        copy_to_device(arrays.x.row(row), start[static_cast<size_t>(row)].data(),
                       static_cast<uint64_t>(w.hidden) * 4, nullptr);
      program.launch(nullptr, rows);
      std::vector<std::vector<float>> got;
      for (int row = 0; row < rows; ++row) {
        got.emplace_back(arrays.x.row(row), arrays.x.row(row) + w.hidden);
        ASSERT_LT(relative_error(got.back(), expected[static_cast<size_t>(row)]), kRounding)
            << "row " << row << ", launch " << launch;
      }
      if (first.empty()) first = got;
      ASSERT_EQ(got, first) << "launch " << launch;
    }
  }
}

TEST(PersistentRows, MultiplyAsDefined) {
  expect_rows({512, 768, 512}, 2, 2, 1, 4);
  expect_rows({512, 512, 256}, 4, 4, 2, 4);
}

// The widths are not multiples of a k-tile, and there is room for one row more than there is.
TEST(PersistentRows, HaveRaggedWidthsAndFewerRowsThanThereIsRoomFor) {
  expect_rows({800, 288, 416}, 2, 2, 1, 6);
  expect_rows({416, 288, 800}, 4, 3, 1, 6);
}

// All blocks make these inputs together: of down, and with a norm.
TEST(PersistentRows, ShareLongInputs) {
  expect_rows({256, 256, 4352}, 4, 4, 1, 6);
  expect_rows({2304, 2304, 2400}, 4, 3, 1, 4);
}

// There are more k-tiles than the warps of a pair of blocks make at a time.
TEST(PersistentRows, MakeManyKTilesOneAfterTheOther) {
  expect_rows({4608, 256, 256}, 2, 2, 1, 4);
}

}  // namespace
}  // namespace walsh::cuda
