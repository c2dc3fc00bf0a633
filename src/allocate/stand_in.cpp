#include "allocate/stand_in.h"

#include <algorithm>
#include <cmath>

#include "base/aligned.h"
#include "codec/codec.h"
#include "quantize/pipeline/open.h"
#include "quantize/source/balance.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Undoes the rotation of the outputs, column by column.
void invert_outputs(const Rotation& rotation, int64_t rows, int64_t cols, ThreadPool& pool,
                    float* values) {
  if (rotation.kind == RotationKind::none) return;
  const Rotator rotator(rotation, rows);
  pool.for_ranges(cols, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> column(static_cast<size_t>(rows));
    for (int64_t c = begin; c < end; ++c) {
      for (int64_t r = 0; r < rows; ++r)
        column[static_cast<size_t>(r)] = values[r * cols + c];
      rotator.invert(column.data());
      for (int64_t r = 0; r < rows; ++r)
        values[r * cols + c] = column[static_cast<size_t>(r)];
    }
  });
}

}  // namespace

double declared_nmse(const Format& format) {
  if (format.bound > 0) return format.bound;
  // A faster profile declares no bound.
  if (const auto full_profile = codec_of(format).full_profile) {
    const Format& full = full_profile(format);
    if (full.bound > 0) return full.bound;
  }
  throw Error(ErrorCode::usage, "--candidates",
              std::string(format.name) + " declares no error, so its damage cannot be predicted");
}

// One of these formats stands in where they are not rotated, because their errors have other
// shapes.
const Format& stand_in_for(std::span<const Format* const> formats) {
  if (formats.front()->rotation_block != 0) return get_format("tq3");
  return **std::max_element(formats.begin(), formats.end(), [](const Format* a, const Format* b) {
    return declared_nmse(*a) < declared_nmse(*b);
  });
}

StandIn::StandIn(std::unique_ptr<Compressor> compressor, ThreadPool& pool)
    : compressor_(std::move(compressor)),
      pool_(pool),
      plan_(read_plan(compressor_->config_json(), compressor_->path() + ": config.json")) {
  for (const TensorPlan& plan : compressor_->tensors())
    if (plan.fed_site >= 0) fed_sites_[plan.name] = plan.fed_site;
}

std::unique_ptr<WeightSource> StandIn::plain(bool wide) const {
  Recipe dense = compressor_->recipe();
  dense.type = &dense_format(DType::f32);
  dense.embed_type = dense.head_type = wide ? dense.type : nullptr;
  dense.rules.clear();
  dense.calibration.reset();
  const bool folded = dense.rotate == RotateAt::residual;
  return open_source(compressor_->path(), folded || wide ? &dense : nullptr, pool_);
}

std::vector<float> StandIn::row_factors(const std::string& name, int64_t rows) {
  const auto fed = fed_sites_.find(name);
  if (fed == fed_sites_.end()) return {};
  const Site& site = plan_.sites[static_cast<size_t>(fed->second)];
  return feeder_factors(site.feeder, compressor_->column_scales(site.matrices.front()), rows);
}

const Tensor& StandIn::encoded(const std::string& name) {
  const auto known = encoded_.find(name);
  if (known != encoded_.end()) return known->second;
  const Tensor& tensor = encoded_[name] = compressor_->load(name);
  compressor_->release(name);
  bytes_ += tensor_bytes(*tensor.format, tensor.rows, tensor.cols);
  return tensor;
}

void StandIn::decode(const Tensor& coded, std::span<const float> scales, int64_t begin, int64_t end,
                     float* out) const {
  decode_rows(coded, begin, end, out);
  if (scales.empty()) return;
  for (int64_t r = begin; r < end; ++r, out += coded.cols)
    for (size_t c = 0; c < scales.size(); ++c)
      out[c] /= scales[c];
}

Tensor StandIn::erring(const std::string& name, const Tensor& original, double nmse) {
  constexpr int64_t kRows = 16;  // this many rows are decoded at a time
  const Tensor& coded = encoded(name);
  const int64_t rows = coded.rows, cols = coded.cols;
  const std::span<const float> scales = compressor_->column_scales(name);
  auto buffer = std::make_shared<AlignedArray<float>>(static_cast<size_t>(rows * cols));
  pool_.for_ranges(rows, kRows, [&](int64_t begin, int64_t end) {
    decode(coded, scales, begin, end, buffer->data() + begin * cols);
  });
  invert_outputs(compressor_->form_of(name).output, rows, cols, pool_, buffer->data());
  const std::vector<float> factors = row_factors(name, rows);
  // A code with least-squares scales returns (1 - D) W + sqrt(D (1 - D)) N, which is the test
  // channel of rate-distortion theory. N is taken from the stand-in.
  const double own = declared_nmse(*coded.format);
  const double noise = std::sqrt(nmse * (1 - nmse) / (own * (1 - own)));
  const auto of_code = static_cast<float>(noise);
  const auto of_exact = static_cast<float>(1 - nmse - noise * (1 - own));
  pool_.for_ranges(rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> exact(static_cast<size_t>(cols));
    for (int64_t r = begin; r < end; ++r) {
      decode_rows(original, r, r + 1, exact.data());
      float* row = buffer->data() + r * cols;
      const float factor = factors.empty() ? 1.0f : 1 / factors[static_cast<size_t>(r)];
      for (int64_t c = 0; c < cols; ++c)
        row[c] = of_exact * exact[static_cast<size_t>(c)] + of_code * (row[c] * factor);
    }
  });
  Tensor result;
  result.format = &dense_format(DType::f32);
  result.rows = rows;
  result.cols = cols;
  result.data = std::as_bytes(std::span<const float>(buffer->data(), buffer->size()));
  result.owner = buffer;
  return result;
}

}  // namespace walsh
