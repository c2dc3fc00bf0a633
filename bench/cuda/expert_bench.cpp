// Measures layers with experts, for random choices of rows. For steps of 16 and 64 sequences it
// measures the choice, the products with their inputs, and all of these behind each other. For
// prompts it measures the products by tiles of every shape, the inputs of down and the sum. Times
// are medians of graph replays.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/cuda/memory_pool.h"
#include "codec/format.h"
#include "device_timing.h"
#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/experts/expert_tile.h"
#include "kernels/cuda/rows/prepare.h"

namespace walsh::cuda {
namespace {

constexpr int kRepeats = 4;

struct Model {
  const char* name;
  int64_t experts, chosen, hidden, width;
};
constexpr Model kModels[] = {{"30b-a3b", 128, 8, 2048, 768}, {"gpt-oss-20b", 32, 4, 2880, 2880}};

int64_t padded(int64_t cols) {
  return (cols + kPaddedColumns - 1) / kPaddedColumns * kPaddedColumns;
}

// Holds random codes of some matrices of every expert, at one distance.
struct Experts {
  std::vector<std::vector<Matrix>> of_expert;  // the shape is [expert][matrix]
  int64_t stride = 0;

  Experts(const Format& format, int64_t experts, int64_t rows, int64_t cols, int matrices) {
    MemoryPool measured;
    allocate(format, experts, rows, cols, matrices, measured);
    MemoryPool pool(measured.used());
    allocate(format, experts, rows, cols, matrices, pool);
    Random random(1);
    std::vector<uint64_t> bytes(of_expert[0][0].codes.bytes() / 8);
    for (uint64_t& word : bytes)
      word = random.next();
    for (const std::vector<Matrix>& all : of_expert) {
      for (const Matrix& matrix : all) {
        check(cudaMemcpy(matrix.codes.as(), bytes.data(), bytes.size() * 8, cudaMemcpyHostToDevice),
              "copy");
        // These are fp16 scales of about 0.004.
        check(cudaMemset(matrix.scales.as(), 0x1c, matrix.scales.bytes()), "scales");
        if (matrix.offset_group != 0)
          check(cudaMemset(matrix.offsets.as(), 0, matrix.offsets.bytes()), "offsets");
      }
    }
    stride = of_expert[1][0].codes.as<std::byte>() - of_expert[0][0].codes.as<std::byte>();
  }

  // Returns how many bytes the matrices of one expert take.
  uint64_t bytes() const {
    uint64_t all = 0;
    for (const Matrix& m : of_expert[0])
      all += m.codes.bytes() + m.scales.bytes() + m.offsets.bytes();
    return all;
  }

  void allocate(const Format& format, int64_t experts, int64_t rows, int64_t cols, int matrices,
                MemoryPool& pool) {
    of_expert.clear();
    const MemoryPool::Scope scope(pool);
    for (int64_t e = 0; e < experts; ++e) {
      auto& all = of_expert.emplace_back();
      for (int i = 0; i < matrices; ++i)
        all.push_back(allocate_matrix(format, 0, rows, cols));
    }
  }
};

struct Choices {
  ExpertPlan plan;
  RouteCall call;
  Buffer logits, choices, weights, row, slot, items;

  Choices(const Model& model, int64_t m)
      : plan(plan_experts(m, model.chosen, model.experts, true)),
        logits(normal_floats(static_cast<uint64_t>(m * model.experts))) {
    const auto slots = static_cast<uint64_t>(m * model.chosen);
    choices = Buffer(slots * sizeof(int32_t));
    weights = Buffer(slots * sizeof(float));
    row = Buffer(slots * sizeof(int32_t));
    slot = Buffer(slots * sizeof(int32_t));
    items = Buffer(static_cast<uint64_t>(most_items(m, model.chosen, model.experts)) *
                   sizeof(ExpertItem));
    call.rule.experts = static_cast<int>(model.experts);
    call.rule.chosen = static_cast<int>(model.chosen);
    call.logits = logits.as<float>();
    call.m = m;
    call.choices = choices.as<int32_t>();
    call.weights = weights.as<float>();
    choose(nullptr);
    check(cudaDeviceSynchronize(), "routing");
  }

  void choose(Stream stream) const {
    route(call, plan, {row.as<int32_t>(), slot.as<int32_t>(), items.as<ExpertItem>()}, stream);
  }
  // Returns how many experts have slots.
  int64_t used(const Model& model) const {
    std::vector<ExpertItem> all(items.bytes() / sizeof(ExpertItem));
    check(cudaMemcpy(all.data(), items.as(), items.bytes(), cudaMemcpyDeviceToHost), "copy");
    std::vector<bool> has(static_cast<size_t>(model.experts));
    all.resize(static_cast<size_t>(plan.places(call.m * model.chosen, model.experts)));
    for (const ExpertItem& item : all)
      if (item.count > 0) has[static_cast<size_t>(item.expert)] = true;
    return std::count(has.begin(), has.end(), true);
  }
};

Activations random_inputs(int64_t m, int64_t cols) {
  Activations x(m, padded(cols), 128, 1);
  Random random(2);
  x.q = filled<int8_t>(x.q.bytes(), [&](uint64_t) {
    return static_cast<int8_t>(static_cast<int>(random.below(255)) - 127);
  });
  x.scales = filled<float>(x.scales.bytes() / 4, [](uint64_t) { return 0.01f; });
  return x;
}

Matmul product_of(const Matrix& matrix, const Activations& x, float* y, int64_t rows) {
  Matmul p;
  p.pass[0] = &matrix;
  p.input[0] = &x;
  p.y = y;
  p.ldy = rows;
  return p;
}

void report(const char* what, double seconds_taken, double operations) {
  fmt::print("  {:28} {:8.1f} us {:6.0f} TOP/s\n", what, seconds_taken * 1e6,
             operations / seconds_taken * 1e-12);
}

void bench_products(const char* what, std::span<const Matmul> products, int64_t stride,
                    const ExpertBatch& batch, double operations) {
  using detail::TileShape;
  const std::pair<const char*, TileShape> shapes[] = {{"warp groups", TileShape::group},
                                                      {"256 x 128", TileShape::large},
                                                      {"64 x 64, four ways", TileShape::medium}};
  for (const auto& [name, shape] : shapes) {
    const double taken = seconds(kRepeats, [&](int, Stream stream) {
      detail::multiply_experts_by_tiles(products, stride, batch, shape, stream);
    });
    report(fmt::format("{}, {}", what, name).c_str(), taken, operations);
  }
}

ExpertSum sum_of(const Model& model, const Choices& routed, int64_t m, const Buffer& results,
                 const Buffer& out) {
  ExpertSum call;
  call.results = results.as<float>();
  call.slot = routed.slot.as<const int32_t>();
  call.weights = routed.weights.as<const float>();
  call.out = out.as<float>();
  call.m = m;
  call.width = model.hidden;
  call.chosen = static_cast<int>(model.chosen);
  return call;
}

void bench_around(const Model& model, const Choices& routed, int64_t m, const Buffer& gate,
                  const Buffer& up, Activations& x, const Buffer& results) {
  const int64_t slots = m * model.chosen;
  InputSource source;
  source.x = gate.as<float>();
  source.up = up.as<float>();
  source.ldx = source.width = model.width;
  InputForm form;
  form.rotation.block = 256;
  form.padded = model.width;
  form.out = &x;
  const double inputs = seconds(kRepeats, [&](int, Stream stream) {
    prepare(source, {&form, 1}, slots, stream);
  });
  const Buffer out(static_cast<uint64_t>(m * model.hidden) * sizeof(float), true);
  const ExpertSum call = sum_of(model, routed, m, results, out);
  const double sum = seconds(kRepeats, [&](int, Stream stream) { sum_experts(call, stream); });
  const auto rate = [](int64_t bytes, double taken) {
    return static_cast<double>(bytes) / taken * 1e-9;
  };
  fmt::print("  {:28} {:8.1f} us {:6.0f} GB/s\n  {:28} {:8.1f} us {:6.0f} GB/s\n", "inputs of down",
             inputs * 1e6, rate(slots * model.width * 9, inputs), "sum", sum * 1e6,
             rate((slots + m) * model.hidden * 4, sum));
}

// Prints how long the launches of a step of m sequences take, and the bytes of the chosen experts'
// weights.
void bench_step(const Model& model, const char* format_name, int64_t m) {
  const Format& format = get_format(format_name);
  const Choices routed(model, m);
  const int64_t slots = m * model.chosen, used = routed.used(model);
  fmt::print("{} {}, {} rows, {} experts, items of {}\n", model.name, format_name, m, used,
             routed.plan.per_item);
  const Experts first(format, model.experts, model.width, model.hidden, 2);
  const Experts last(format, model.experts, model.hidden, model.width, 1);
  const Activations x = random_inputs(m, model.hidden);
  Activations gated = random_inputs(slots, model.width);
  const auto floats = static_cast<uint64_t>(slots) * sizeof(float);
  const Buffer gate(floats * static_cast<uint64_t>(model.width), true);
  const Buffer up(floats * static_cast<uint64_t>(model.width), true);
  const Buffer results(floats * static_cast<uint64_t>(model.hidden), true);
  const Buffer out(static_cast<uint64_t>(m * model.hidden) * sizeof(float), true);
  const Buffer arrived(kSumCounters * sizeof(int32_t), true);
  ExpertBatch batch;
  batch.plan = routed.plan;
  batch.slots = slots;
  batch.experts = model.experts;
  batch.items = routed.items.as<const ExpertItem>();
  const Matmul both[] = {product_of(first.of_expert[0][0], x, gate.as<float>(), model.width),
                         product_of(first.of_expert[0][1], x, up.as<float>(), model.width)};
  const Matmul down = product_of(last.of_expert[0][0], gated, results.as<float>(), model.hidden);
  InputForm form;
  form.rotation.block = 256;
  form.padded = model.width;
  form.out = &gated;
  ExpertTail tail;
  tail.makes_inputs = true;
  tail.source.x = gate.as<float>();
  tail.source.up = up.as<float>();
  tail.source.ldx = tail.source.width = model.width;
  tail.forms = {&form, 1};
  tail.sum = {sum_of(model, routed, m, results, out), routed.row.as<const int32_t>(),
              arrived.as<int32_t>()};
  const bool tiles = routed.plan.kind == ExpertPlan::Kind::tiles;
  const auto multiply_first = [&](Stream stream) {
    batch.rows = routed.row.as<const int32_t>();
    multiply_experts(both, first.stride, batch, stream);
  };
  const auto multiply_last = [&](Stream stream) {
    batch.rows = nullptr;
    if (tiles) prepare(tail.source, tail.forms, slots, stream);
    multiply_experts({&down, 1}, last.stride, batch, stream, tiles ? nullptr : &tail);
    if (tiles) sum_experts(tail.sum.sum, stream);
  };
  const auto show = [&](const char* what, uint64_t bytes, const auto& launches) {
    const double taken = seconds(kRepeats, [&](int, Stream stream) { launches(stream); });
    const double rate = static_cast<double>(static_cast<uint64_t>(used) * bytes) / taken;
    fmt::print("  {:28} {:8.1f} us {:6.0f} GB/s\n", what, taken * 1e6, rate * 1e-9);
  };
  show("choice", 0, [&](Stream stream) { routed.choose(stream); });
  show("gate, up", first.bytes(), multiply_first);
  show("inputs, down, sum", last.bytes(), multiply_last);
  show("all", first.bytes() + last.bytes(), [&](Stream stream) {
    routed.choose(stream);
    multiply_first(stream);
    multiply_last(stream);
  });
}

void bench_model(const Model& model, const char* format_name, int64_t m) {
  const Format& format = get_format(format_name);
  const Choices routed(model, m);
  const int64_t slots = m * model.chosen;
  fmt::print("{} {}, {} rows, items of {}\n", model.name, format_name, m, routed.plan.per_item);
  const Experts first(format, model.experts, model.width, model.hidden, 2);
  const Experts last(format, model.experts, model.hidden, model.width, 1);
  const Activations x = random_inputs(m, model.hidden);
  Activations gated = random_inputs(slots, model.width);
  const auto floats = static_cast<uint64_t>(slots) * sizeof(float);
  const Buffer gate(floats * static_cast<uint64_t>(model.width), true);
  const Buffer up(floats * static_cast<uint64_t>(model.width), true);
  const Buffer results(floats * static_cast<uint64_t>(model.hidden), true);

  ExpertBatch batch;
  batch.plan = routed.plan;
  batch.slots = slots;
  batch.experts = model.experts;
  batch.items = routed.items.as<const ExpertItem>();
  batch.rows = routed.row.as<const int32_t>();
  const double operations = 2.0 * static_cast<double>(slots * model.width * model.hidden);
  const Matmul both[] = {product_of(first.of_expert[0][0], x, gate.as<float>(), model.width),
                         product_of(first.of_expert[0][1], x, up.as<float>(), model.width)};
  bench_products("gate, up", both, first.stride, batch, 2 * operations);
  batch.rows = nullptr;
  const Matmul down = product_of(last.of_expert[0][0], gated, results.as<float>(), model.hidden);
  bench_products("down", {&down, 1}, last.stride, batch, operations);
  bench_around(model, routed, m, gate, up, gated, results);
}

}  // namespace
}  // namespace walsh::cuda

int main(int argc, char** argv) {
  using namespace walsh::cuda;
  if (devices().empty()) {
    fmt::print("no CUDA device: {}\n", unavailable_reason());
    return 1;
  }
  use_device(devices()[0].index);
  std::vector<const char*> formats(argv + 1, argv + argc);
  if (formats.empty()) formats = {"tq3", "tq4"};
  for (const char* format : formats) {
    for (const Model& model : kModels) {
      for (const int64_t m : {16, 64})
        bench_step(model, format, m);
      for (const int64_t m : {4096, 1024})
        bench_model(model, format, m);
    }
  }
  return 0;
}
