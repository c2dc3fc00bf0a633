// Balances the channels of a Compressor. It decides which sites are balanced, by how much, and
// where the scales go.
#include <algorithm>

#include "base/aligned.h"
#include "quantize/pipeline/compressor.h"
#include "quantize/source/balance.h"
#include "walsh/error.h"

namespace walsh {

// A site is balanced if every coded matrix that reads it is rotated and the scales cost nothing.
// They cost nothing in the gain of the norm in front, if it feeds no other site, or with
// calibration in the rows of the feeder. A matrix that reads the site and is never coded gets its
// scaled columns as float32. Sites whose input a fold rotates are not balanced.
void Compressor::decide_balancing() {
  if (!recipe_.balance || recipe_.rotation == RotationKind::none) return;
  for (size_t s = 0; s < sites_.size(); ++s) {
    if (is_ahead(static_cast<int>(s)) || !all_rotated(sites_[s])) continue;
    // Behind the layer that predicts ahead, another norm feeds the head as well.
    if (s == plan_.sites.size() && !plan_.ahead.empty()) continue;
    if (fold_ && fold_->input_rotated(sites_[s].matrices.front())) continue;
    if (!sites_[s].norm.empty()) balance_norm(s);
    if (!sites_[s].feeder.matrix.empty() && recipe_.calibration) balance_feeder(s);
  }
}

bool Compressor::all_rotated(const Site& site) const {
  return !site.matrices.empty() &&
         std::all_of(site.matrices.begin(), site.matrices.end(), [&](const auto& name) {
           return tensors_[index_.at(name)].format->rotation_block != 0;
         });
}

void Compressor::balance_norm(size_t s) {
  const std::string& name = sites_[s].norm;
  const auto uses = std::count_if(sites_.begin(), sites_.end(),
                                  [&](const Site& site) { return site.norm == name; });
  if (uses != 1) return;
  balanced_[s] = true;
  TensorPlan& norm = tensors_[index_.at(name)];
  norm.folded_site = static_cast<int>(s);
  norm.format = &dense_format(DType::f32);
  for (const std::string& plain : sites_[s].plain) {
    TensorPlan& matrix = tensors_[index_.at(plain)];
    matrix.plain_site = static_cast<int>(s);
    matrix.format = &dense_format(DType::f32);
  }
}

// Balances a site through its feeder. A dense one is left alone: it keeps its type, and so would
// round its scaled rows.
void Compressor::balance_feeder(size_t s) {
  const Feeder& feeder = sites_[s].feeder;
  TensorPlan& matrix = tensors_[index_.at(feeder.matrix)];
  if (matrix.format->dense) return;
  balanced_[s] = true;
  matrix.fed_site = static_cast<int>(s);
  if (feeder.bias.empty()) return;
  TensorPlan& bias = tensors_[index_.at(feeder.bias)];
  bias.fed_site = static_cast<int>(s);
  bias.format = &dense_format(DType::f32);
}

std::vector<std::string> Compressor::separately_scaled() const {
  std::vector<std::string> result;
  for (size_t s = 0; s < sites_.size(); ++s) {
    if (!balanced_[s] || !sites_[s].norm.empty()) continue;
    result.insert(result.end(), sites_[s].matrices.begin(), sites_[s].matrices.end());
  }
  return result;
}

std::vector<float> Compressor::gain(const Site& site) {
  const Tensor norm = source_.load(site.norm);
  check_finite(site.norm, norm);
  std::vector<float> gain(static_cast<size_t>(norm.cols));
  decode_rows(norm, 0, 1, gain.data());
  for (float& g : gain)
    g += plan_.gain_offset;
  return gain;
}

const std::vector<float>& Compressor::scales(int site_number) {
  auto& known = scales_[static_cast<size_t>(site_number)];
  if (!known) {
    const Site& site = sites_[static_cast<size_t>(site_number)];
    known = balance(site, recipe_.calibration ? calibration().rms(site_number) : gain(site));
  }
  return *known;
}

std::vector<float> Compressor::balance(const Site& site, std::vector<float> sizes) {
  std::vector<double> norms(sizes.size(), 0.0);
  // These are the checkpoint's matrices: a fold that keeps the basis of the columns keeps their
  // norms, too.
  for (const std::string& name : site.matrices) {
    const Tensor matrix = source_.load(name);
    if (matrix.cols != static_cast<int64_t>(sizes.size())) {
      throw Error(ErrorCode::bad_input, path() + ": tensor " + name,
                  "found " + std::to_string(matrix.cols) + " columns, but the input of " +
                      site.name + " has " + std::to_string(sizes.size()));
    }
    if (gpu_) {
      gpu_->add_column_norms(matrix, norms);
    } else {
      add_column_norms(matrix, pool_, norms);
    }
    source_.release(name);
  }
  tie_channels(site.feeder, norms, sizes);
  return balance_scales(norms, sizes);
}

Tensor Compressor::folded_gain(const TensorPlan& plan) {
  std::vector<float> folded = gain(sites_[static_cast<size_t>(plan.folded_site)]);
  const std::vector<float>& s = scales(plan.folded_site);
  auto buffer = std::make_shared<AlignedArray<float>>(folded.size());
  for (size_t c = 0; c < folded.size(); ++c)
    (*buffer)[c] = folded[c] / s[c] - plan_.gain_offset;
  Tensor tensor;
  tensor.format = plan.format;
  tensor.rows = plan.rows;
  tensor.cols = plan.cols;
  tensor.data = std::as_bytes(std::span<const float>(buffer->data(), buffer->size()));
  tensor.owner = buffer;
  return tensor;
}

std::span<const float> Compressor::column_scales(const std::string& name) {
  const TensorPlan& plan = tensors_[index_.at(name)];
  if (plan.site < 0 || !balanced_[static_cast<size_t>(plan.site)]) return {};
  return scales(plan.site);
}

}  // namespace walsh
