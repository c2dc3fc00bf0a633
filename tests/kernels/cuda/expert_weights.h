// Makes matrices of experts and choices of rows, for tests of their products on GPUs.
#pragma once

#include <vector>

#include "base/cuda/memory_pool.h"
#include "gemv_data.h"
#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/weights/matrix.h"

namespace walsh::cuda {

struct ExpertShape {
  int64_t experts, chosen, rows, cols;
};

// Holds the matrices of one kind of all experts, on both sides, and their biases.
struct ExpertWeights {
  std::vector<RandomTensor> host;
  std::vector<std::vector<float>> bias;
  std::vector<std::vector<Matrix>> device;
  std::vector<Buffer> device_bias;
  int64_t stride = 0;

  ExpertWeights(const Format& format, const ExpertShape& shape, uint64_t seed) {
    const auto count = static_cast<uint64_t>(shape.experts);
    for (uint64_t e = 0; e < count; ++e) {
      host.emplace_back(format, shape.rows, shape.cols, seed + e);
      bias.push_back(random_values(shape.rows, seed + 100 + e));
    }
    MemoryPool measured;
    allocate(format, shape, measured);
    MemoryPool pool(measured.used());
    allocate(format, shape, pool);
    Uploader uploader;
    Buffer staging;
    for (size_t e = 0; e < host.size(); ++e) {
      for (int pass = 0; pass < format.passes; ++pass)
        fill_matrix(device[e][static_cast<size_t>(pass)], host[e].tensor, pass, uploader, staging);
      uploader.copy(device_bias[e].as(), bias[e].data(), device_bias[e].bytes());
    }
    uploader.synchronize();
    if (host.size() > 1)
      stride = device[1][0].codes.as<std::byte>() - device[0][0].codes.as<std::byte>();
  }

  void allocate(const Format& format, const ExpertShape& shape, MemoryPool& pool) {
    device.clear();
    device_bias.clear();
    const MemoryPool::Scope scope(pool);
    for (int64_t e = 0; e < shape.experts; ++e) {
      auto& matrix = device.emplace_back();
      for (int pass = 0; pass < format.passes; ++pass)
        matrix.push_back(allocate_matrix(format, pass, shape.rows, shape.cols));
      device_bias.emplace_back(static_cast<uint64_t>(shape.rows) * sizeof(float));
    }
  }
};

// Holds choices of m rows and what a GPU makes of them.
struct RoutedRows {
  ExpertPlan plan;
  Buffer logits, choices, weights, row, slot, items;
  std::vector<int32_t> slot_of, expert_of_slot, row_of_slot;

  RoutedRows(const ExpertShape& shape, int64_t m, bool tiles, uint64_t seed)
      : RoutedRows(shape, m, tiles, random_values(m * shape.experts, seed)) {}

  // Scores are [m][experts].
  RoutedRows(const ExpertShape& shape, int64_t m, bool tiles, const std::vector<float>& scores)
      : plan(plan_experts(m, shape.chosen, shape.experts, tiles)), logits(to_device(scores)) {
    const auto slots = static_cast<uint64_t>(m * shape.chosen);
    choices = Buffer(slots * sizeof(int32_t));
    weights = Buffer(slots * sizeof(float));
    row = Buffer(slots * sizeof(int32_t));
    slot = Buffer(slots * sizeof(int32_t));
    items = Buffer(static_cast<uint64_t>(most_items(m, shape.chosen, shape.experts)) *
                   sizeof(ExpertItem));
    RouteCall call;
    call.rule.experts = static_cast<int>(shape.experts);
    call.rule.chosen = static_cast<int>(shape.chosen);
    call.logits = logits.as<float>();
    call.m = m;
    call.choices = choices.as<int32_t>();
    call.weights = weights.as<float>();
    route(call, plan, {row.as<int32_t>(), slot.as<int32_t>(), items.as<ExpertItem>()}, nullptr);
    slot_of = to_host<int32_t>(slot);
    row_of_slot = to_host<int32_t>(row);
    const auto chosen = to_host<int32_t>(choices);
    expert_of_slot.resize(slots);
    for (size_t i = 0; i < slots; ++i)
      expert_of_slot[static_cast<size_t>(slot_of[i])] = chosen[i];
  }

  ExpertBatch batch(const ExpertShape& shape, int64_t m, bool by_row) const {
    ExpertBatch batch;
    batch.plan = plan;
    batch.slots = m * shape.chosen;
    batch.experts = shape.experts;
    batch.items = items.as<ExpertItem>();
    batch.rows = by_row ? row.as<const int32_t>() : nullptr;
    return batch;
  }
};

}  // namespace walsh::cuda
