#include "codec/trellis/trellis_feedback.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "base/random.h"
#include "codec/scalar/encoder_search.h"
#include "codec/trellis/tile_device.h"
#include "codec/trellis/trellis_search.h"
#include "codec/trellis/trellis_tensor.h"

namespace walsh::detail {
namespace {

constexpr double kLeastFactor = 0.5, kLargestFactor = 2;

float expected_scale(const TrellisCode& code, const TrellisTable& table, int seam_weights,
                     TileDevice* device) {
  constexpr int kTiles = 32;
  Random random(5);
  std::vector<float> x(kTiles * kTileWeights);
  for (float& v : x)
    v = static_cast<float>(random.normal());
  const auto target = [&](float v) { return v / code.prescale; };
  std::vector<uint16_t> states(x.size());
  if (device) {
    device->prepare(code, table, seam_weights);
    std::transform(x.begin(), x.end(), device->targets(0, kTiles), target);
    device->start(0, kTiles);
    std::copy_n(device->finish(0), states.size(), states.begin());
  } else {
    std::vector<float> targets(x.size());
    std::transform(x.begin(), x.end(), targets.begin(), target);
    TileSearch(table, seam_weights).encode(targets.data(), kTiles, states.data());
  }
  double xq = 0, qq = 0;
  for (int i = 0; i < kTiles * kTileWeights; ++i) {
    const double q = table.level(states.data() + i / kTileWeights * kTileWeights, i % kTileWeights);
    xq += double{x[static_cast<size_t>(i)]} * q;
    qq += q * q;
  }
  return static_cast<float>(xq / qq);
}

}  // namespace

FedBackTrellis::FedBackTrellis(const EncodeCall& call, float* kept)
    : EncodeCall(call),
      rotator(tensor.rotation[0], feedback->size()),
      powers(measure_powers(rotator, tensor.rows, tensor.cols, read_rows, pool, kept)),
      scales(fit_rank_one(powers)),
      table(code()),
      expected(expected_scale(code(), table, seam_weights(options.effort), device)) {
  if (code().block_scales) return;
  for (size_t b = 0; b < scales.col.size(); ++b)
    storage.halves(2)[b] = f32_to_f16(scales.col[b]);
}

void FedBackTrellis::read(int64_t begin, int64_t end, float* rotated) const {
  const int64_t cols = tensor.cols;
  std::vector<float> source(static_cast<size_t>((end - begin) * cols));
  read_finite_rows(read_rows, begin, end, cols, source.data());
  for (int64_t row = begin; row < end; ++row, rotated += rotator.size())
    rotate_row(rotator, source.data() + (row - begin) * cols, cols, row, rotated);
}

FedBackScales::FedBackScales(const FedBackTrellis& job, int64_t first, int64_t rows)
    : job_(job), first_(first), rows_(rows), blocks_(job.powers.blocks()) {
  const TrellisCode& code = job_.code();
  for (int64_t r = 0; r < rows_; ++r) {
    for (int64_t b = 0; b < blocks_; ++b) {
      const auto power = static_cast<size_t>((first_ + r) * blocks_ + b);
      const float scale = code.block_scales
                              ? static_cast<float>(std::sqrt(job_.powers.mean[power]))
                              : row_scale(r) * job_.scales.col[static_cast<size_t>(b)];
      const float prescaled = code.prescale * scale;
      start_.push_back(scale);
      target_factors_.push_back(prescaled > 0 && std::isnormal(1 / prescaled) ? 1 / prescaled
                                                                              : 0.0f);
      level_factors_.push_back(job_.expected * scale);
    }
  }
}

float FedBackScales::row_scale(int64_t r) const {
  return std::min(job_.scales.row[static_cast<size_t>(first_ + r)], kLargestHalf);
}

void FedBackScales::store(const double* row_factors) const {
  uint16_t* out = job_.storage.halves(1);
  for (int64_t r = 0; r < rows_; ++r) {
    const double factor =
        std::clamp(row_factors[r], kLeastFactor, kLargestFactor) * double{job_.expected};
    const auto stored = [&](float start) {
      return saturated_half(static_cast<float>(factor * double{start}), kLargestHalf);
    };
    if (!job_.code().block_scales) {
      out[first_ + r] = stored(row_scale(r));
      continue;
    }
    for (int64_t b = 0; b < blocks_; ++b)
      out[(first_ + r) * blocks_ + b] = stored(start_[static_cast<size_t>(r * blocks_ + b)]);
  }
}

}  // namespace walsh::detail
