// Tests delta nets in the persistent kernel, run on the host (emulated/device.h), against single
// launches.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
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

// Results are the same but for the order of additions and the lowest bit of what blocks hand over.
constexpr double kSame = 1e-5;

struct Shape {
  DeltaDims dims;
  int64_t hidden;
};

// Computes x += O gated(delta rule of W norm(x)).
struct Layer {
  DeltaDims dims;
  Form into_mixer, into_x;
  Coded qkv, z, o;
  std::vector<float> gain;
  Buffer device_gain, taps, rate, bias, query_scale, key_scale, norm;
  DenseMatrix decay, strength;
  int64_t rows_at, states_at;

  Layer(Random& random, const Shape& s, uint32_t seed, int64_t slot_at)
      : dims(s.dims),
        into_mixer(s.hidden, seed),
        into_x(s.dims.value_width(), seed + 1),
        qkv(random, s.dims.channels(), s.hidden),
        z(random, s.dims.value_width(), s.hidden),
        o(random, s.hidden, s.dims.value_width()),
        gain(random_values(random, s.hidden)),
        device_gain(to_device(gain)),
        taps(to_device(random_values(random, s.dims.taps * s.dims.channels(), 0.5))),
        rate(to_device(random_values(random, s.dims.value_heads, 0.5))),
        bias(to_device(random_values(random, s.dims.value_heads))),
        query_scale(to_device(std::vector<float>(static_cast<size_t>(s.dims.key_dim),
                                                 1.0f / static_cast<float>(s.dims.key_dim)))),
        key_scale(
            to_device(std::vector<float>(static_cast<size_t>(s.dims.key_dim),
                                         1.0f / std::sqrt(static_cast<float>(s.dims.key_dim))))),
        norm(to_device(random_values(random, s.dims.value_dim))),
        decay{DType::f32, s.dims.value_heads, s.hidden, small_rows(random, s)},
        strength{DType::f32, s.dims.value_heads, s.hidden, small_rows(random, s)},
        rows_at(slot_at),
        states_at(slot_at + kept_floats(s.dims.channels(), s.dims.taps)) {}

  static Buffer small_rows(Random& random, const Shape& s) {
    return to_device(random_values(random, s.dims.value_heads * s.hidden,
                                   1.5 / std::sqrt(static_cast<double>(s.hidden))));
  }

  int64_t end() const { return states_at + dims.state_floats(); }
};

// Holds the state that a sequence leaves, in the second slot of two.
struct Slots {
  int64_t floats;
  Buffer memory;

  // Earlier content must not matter.
  explicit Slots(int64_t each)
      : floats(each), memory(to_device(std::vector<float>(static_cast<size_t>(2 * each), 1e9f))) {}

  DeltaMemory of(const Layer& layer) const {
    return {memory.as<float>(), floats, layer.rows_at, layer.states_at};
  }
  // Returns the rows and states of the first `positions` ones.
  std::vector<float> held(const std::vector<Layer>& layers, int positions) const {
    std::vector<float> all;
    for (const Layer& layer : layers) {
      const float* slot = memory.as<float>() + floats;
      const int kept = std::min(positions, layer.dims.taps);
      all.insert(all.end(), slot + layer.rows_at,
                 slot + layer.rows_at + kept * layer.dims.channels());
      all.insert(all.end(), slot + layer.states_at, slot + layer.end());
    }
    return all;
  }
};

// Holds the row that launches and programs are for, on the device.
struct Place {
  Buffer position{sizeof(int32_t)}, sequence{sizeof(int32_t)};

  Place() { *sequence.as<int32_t>() = 1; }
  RowPlaces places() const { return {position.as<int32_t>(), sequence.as<int32_t>()}; }
};

ConvolveCall call_of(const Layer& layer, const Slots& slots, const Place& place, const float* in) {
  ConvolveCall call;
  call.dims = layer.dims;
  call.memory = slots.of(layer);
  call.places = place.places();
  call.in = in;
  call.taps = layer.taps.as<float>();
  call.rate = layer.rate.as<float>();
  call.bias = layer.bias.as<float>();
  call.query_scale = layer.query_scale.as<float>();
  call.key_scale = layer.key_scale.as<float>();
  call.m = 1;
  return call;
}

HeadGates gates_of(const Layer& layer, const float* gate) {
  const DeltaDims& d = layer.dims;
  return {gate, d.value_width(), d.value_dim, layer.norm.as<float>(), kEps, d.value_dim};
}

std::vector<float> floats_of(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

std::vector<float> times(const DenseMatrix& m, const std::vector<float>& x) {
  std::vector<float> y;
  for (int64_t row = 0; row < m.rows; ++row) {
    y.push_back(static_cast<float>(
        std::inner_product(x.begin(), x.end(), m.data.as<float>() + row * m.cols, 0.0)));
  }
  return y;
}

// Computes one position by launches.
void launch_layer(const Layer& layer, const Slots& slots, const Place& place,
                  std::vector<float>& x) {
  const std::vector<float> input = normed(x, layer.gain);
  const std::vector<float> quantized = layer.into_mixer.of(input);
  const Buffer channels = to_device(floats_of(layer.qkv.times(quantized)));
  const Buffer gate = to_device(floats_of(layer.z.times(quantized)));
  const Buffer decay = to_device(times(layer.decay, input));
  const Buffer strength = to_device(times(layer.strength, input));
  const auto width = static_cast<size_t>(layer.dims.value_width());
  const Buffer mixed(width * sizeof(float));
  ConvolveCall call = call_of(layer, slots, place, channels.as<float>());
  call.decay = decay.as<float>();
  call.strength = strength.as<float>();
  delta_steps(call, mixed.as<float>(), 0, 1, nullptr);
  gate_heads(mixed.as<float>(), gates_of(layer, gate.as<float>()), 1, layer.dims.value_heads,
             nullptr);
  const std::vector<float> given(mixed.as<float>(), mixed.as<float>() + width);
  add(x, layer.o.times(layer.into_x.of(given)), 1);
}

// Holds rows that all layers share, as those of a model.
struct Rows {
  Buffer x, channels, gates, mixed;

  explicit Rows(const Shape& s)
      : x(static_cast<uint64_t>(s.hidden) * sizeof(float)),
        channels(static_cast<uint64_t>(s.dims.channels()) * sizeof(float)),
        gates(static_cast<uint64_t>(s.dims.value_width()) * sizeof(float)),
        mixed(gates.bytes()) {}
};

bool add_layer(PersistentProgram& program, Layer& layer, const Slots& slots, const Place& place,
               const Rows& rows) {
  const int64_t hidden = layer.o.device.rows, width = layer.dims.value_width();
  const InputSource source{
      rows.x.as<float>(), nullptr, layer.device_gain.as<float>(), kEps, hidden, hidden};
  const InputSource given{rows.mixed.as<float>(), nullptr, nullptr, 0, width, width};
  const InputForm forms[] = {layer.into_mixer.described(), layer.into_x.described()};
  Matmul firsts[] = {product_of(layer.qkv, layer.into_mixer),
                     product_of(layer.z, layer.into_mixer)};
  firsts[0].y = rows.channels.as<float>();
  firsts[1].y = rows.gates.as<float>();
  Matmul last = product_of(layer.o, layer.into_x);
  last.y = rows.x.as<float>();
  last.add = true;
  DeltaStep step;
  step.net = call_of(layer, slots, place, rows.channels.as<float>());
  step.source = source;
  step.decay = &layer.decay;
  step.strength = &layer.strength;
  step.gates = gates_of(layer, rows.gates.as<float>());
  step.mixed = rows.mixed.as<float>();
  return program.multiply(source, {forms, 1}, firsts) && program.step_delta(step) &&
         program.multiply(given, {forms + 1, 1}, {&last, 1});
}

std::vector<Layer> random_layers(Random& random, const Shape& s, int count) {
  std::vector<Layer> layers;
  for (int i = 0; i < count; ++i)
    layers.emplace_back(random, s, static_cast<uint32_t>(100 * i),
                        layers.empty() ? 0 : layers.back().end());
  return layers;
}

// Compares positions of a sequence by the program, with and without pairs of blocks, and one of
// them by launches, with all of them by launches.
void expect_steps(const Shape& s, int count, int processors) {
  SCOPED_TRACE(testing::Message() << s.dims.key_heads << "/" << s.dims.value_heads << " heads of "
                                  << s.dims.key_dim << " and " << s.dims.value_dim);
  emulated::multiprocessors = processors;
  Random random(8);
  std::vector<Layer> layers = random_layers(random, s, count);
  const int64_t each = layers.back().end() + 3;
  const Slots own(each), expected(each);
  const Place place;
  const Rows rows(s);
  for (int position = 0; position < 6; ++position) {
    SCOPED_TRACE(position);
    *place.position.as<int32_t>() = position;
    const std::vector<float> start = random_values(random, s.hidden);
    std::vector<float> wanted = start, got = start;
    for (const Layer& layer : layers)
      launch_layer(layer, expected, place, wanted);
    if (position == 3) {
      for (const Layer& layer : layers)
        launch_layer(layer, own, place, got);
    } else {
      emulated::has_clusters = position % 2 == 0;
      PersistentProgram program;
      for (Layer& layer : layers)
        ASSERT_TRUE(add_layer(program, layer, own, place, rows));
      ASSERT_TRUE(program.finish());
      copy_to_device(rows.x.as(), start.data(), rows.x.bytes(), nullptr);
      program.launch(nullptr);
      got.assign(rows.x.as<float>(), rows.x.as<float>() + s.hidden);
    }
    ASSERT_LT(relative_error(got, wanted), kSame);
    ASSERT_LT(relative_error(own.held(layers, position + 1), expected.held(layers, position + 1)),
              kSame);
  }
}

TEST(PersistentKernel, StepsOfDeltaNetsAreThoseOfLaunches) {
  expect_steps({{2, 4, 64, 64, 4}, 512}, 2, 4);
}

// The shapes have a head that is less than a piece, and one of more pieces than are read at once,
// with keys that fill all registers of a thread; more pieces than blocks, and blocks without any.
TEST(PersistentKernel, StepsDeltaNetsOfAnyShape) {
  expect_steps({{1, 3, 48, 16, 2}, 512}, 1, 2);
  expect_steps({{1, 1, 256, 256, 3}, 768}, 1, 10);
}

// The same launch runs again, with the other tags, from the same slot.
TEST(PersistentKernel, StepsOfDeltaNetsHaveTheSameBitsEveryTime) {
  emulated::multiprocessors = 4;
  emulated::has_clusters = true;
  const Shape s{{2, 2, 32, 32, 4}, 512};
  Random random(8);
  std::vector<Layer> layers = random_layers(random, s, 2);
  const Slots slots(layers.back().end());
  const Place place;
  *place.position.as<int32_t>() = 0;
  const Rows rows(s);
  PersistentProgram program;
  for (Layer& layer : layers)
    ASSERT_TRUE(add_layer(program, layer, slots, place, rows));
  ASSERT_TRUE(program.finish());
  const std::vector<float> start = random_values(random, s.hidden);
  std::vector<float> first;
  for (int launch = 0; launch < 3; ++launch) {
    copy_to_device(rows.x.as(), start.data(), rows.x.bytes(), nullptr);
    program.launch(nullptr);
    std::vector<float> all(rows.x.as<float>(), rows.x.as<float>() + s.hidden);
    const std::vector<float> held = slots.held(layers, 1);
    all.insert(all.end(), held.begin(), held.end());
    if (launch == 0) first = all;
    ASSERT_EQ(all, first) << launch;
  }
}

// Programs do not support heads that do not divide a k-tile, and gates that no product of the
// program writes.
TEST(PersistentKernel, SaysNoToDeltaNetsThatItHasNoPhasesFor) {
  Random random(8);
  const Place place;
  for (const int dim : {48, 64}) {
    const Shape s{{1, 2, 32, dim, 4}, 512};
    std::vector<Layer> layers = random_layers(random, s, 1);
    const Slots slots(layers.back().end());
    const Rows rows(s);
    PersistentProgram program;
    EXPECT_EQ(add_layer(program, layers[0], slots, place, rows), dim == 64) << dim;
    DeltaStep step;
    step.net = call_of(layers[0], slots, place, rows.channels.as<float>());
    step.source = {rows.x.as<float>(), nullptr, nullptr, 0, s.hidden, s.hidden};
    step.decay = &layers[0].decay;
    step.strength = &layers[0].strength;
    step.gates = gates_of(layers[0], rows.gates.as<float>());
    step.mixed = rows.mixed.as<float>();
    EXPECT_FALSE(PersistentProgram().step_delta(step));
  }
}

}  // namespace
}  // namespace walsh::cuda
