#include "quantize/pipeline/compressor.h"

#include <algorithm>
#include <array>

#include "base/aligned.h"
#include "codec/codec.h"
#include "codec/encode/encode_source.h"
#include "codec/encode/encode_tensor.h"
#include "codec/encode/scale_range.h"
#include "quantize/source/balance.h"
#include "walsh/error.h"
#include "walsh/version.h"

namespace walsh {
namespace {

// Two factors may leave this share of the variance unexplained (docs/formats/tc.md).
constexpr double kLargestMisfit = 0.02;

// Outputs of a matrix are rotated only if their number is a multiple of this.
constexpr int64_t kRotatedRows = 32;

// The head and the embedding are activation sites too: they may be coded, with their own rotation.
std::vector<Site> all_sites(const ModelPlan& plan) {
  std::vector<Site> sites = plan.sites;
  Site head, embedding;
  head.name = "head";
  if (!plan.head.empty()) {
    head.norm = plan.final_norm;
    head.matrices = {plan.head};
  }
  embedding.name = "embedding";
  embedding.matrices = {plan.embedding};
  sites.push_back(std::move(head));
  sites.push_back(std::move(embedding));
  if (!plan.layer_embedding.empty()) {
    Site& layers = sites.emplace_back();
    layers.name = "layer_embedding";
    layers.matrices = {plan.layer_embedding};
  }
  sites.insert(sites.end(), plan.ahead.begin(), plan.ahead.end());
  return sites;
}

// Returns the plan of a source. It has no layer that predicts ahead where the checkpoint has none,
// and where a rotation is folded into the residual stream, which does not reach that layer.
ModelPlan plan_of(ModelPlan plan, const Recipe& recipe, const CheckpointSource& source) {
  const bool folds = recipe.rotate == RotateAt::residual;
  if (folds || (!plan.ahead_join.empty() && !source.contains(plan.ahead_join))) {
    const auto ignore = [&](const std::vector<std::string>& names) {
      plan.ignored.insert(plan.ignored.end(), names.begin(), names.end());
    };
    for (const Site& site : plan.ahead) {
      ignore(site.matrices);
      ignore(site.plain);
    }
    ignore(plan.ahead_vectors);
    plan.ahead.clear();
    plan.ahead_vectors.clear();
  }
  return folds ? folded_plan(std::move(plan), source.path()) : plan;
}

}  // namespace

void read_scaled_rows(const Tensor& matrix, std::span<const float> scales, int64_t begin,
                      int64_t end, float* out) {
  decode_rows(matrix, begin, end, out);
  if (scales.empty()) return;
  for (int64_t r = begin; r < end; ++r, out += matrix.cols) {
    for (size_t c = 0; c < scales.size(); ++c)
      out[c] *= scales[c];
  }
}

Compressor::Compressor(Checkpoint checkpoint, ModelPlan plan, Recipe recipe, ThreadPool& pool)
    : source_(std::move(checkpoint), plan.parts, plan.stored),
      plan_(plan_of(std::move(plan), recipe, source_)),
      sites_(all_sites(plan_)),
      recipe_(std::move(recipe)),
      pool_(pool),
      balanced_(sites_.size(), false),
      scales_(sites_.size()) {
  check_recipe(recipe_);
  prepare_fold();
  add_all();
  refuse_unknown();
  decide_balancing();
}

void Compressor::prepare_fold() {
  if (recipe_.rotate != RotateAt::residual) return;
  fold_ = std::make_unique<ResidualFold>(plan_, fold_rotation(recipe_), source_, pool_);
  folded_config_ = untied_config(source_.config_json(), path() + ": config.json");
}

const std::string& Compressor::origin(const std::string& name) const {
  return fold_ ? fold_->origin(name) : name;
}

Tensor Compressor::read_plain(const std::string& name) {
  return fold_ ? fold_->load(name) : source_.load(name);
}

Tensor Compressor::read(const std::string& name) {
  Tensor source = read_plain(name);
  const TensorPlan& plan = tensors_[index_.at(name)];
  try {
    if (plan.fed_site >= 0) {
      const Site& fed = sites_[static_cast<size_t>(plan.fed_site)];
      const int64_t rows = plan.rows == 1 ? plan.cols : plan.rows;
      source = scale_rows(source, feeder_factors(fed.feeder, scales(plan.fed_site), rows), pool_);
    }
    if (plan.plain_site >= 0) source = scale_columns(source, scales(plan.plain_site));
    const Rotation& rotation = plan.output_rotation;
    return rotation.kind == RotationKind::none ? source : rotate_outputs(source, rotation, pool_);
  } catch (const Error& e) {
    if (!e.where().empty()) throw;
    throw Error(e.code(), path() + ": tensor " + name, e.reason());
  }
}

StoredForm Compressor::form_of(const std::string& name) const {
  const Format& format = format_of(name);  // it refuses a tensor that is not there
  const TensorPlan& plan = tensors_[index_.at(name)];
  return {&format, {plan.rotation[0], plan.rotation[1]}, plan.output_rotation};
}

// Returns the format of a tensor that keeps its source type. Folding gives float32 values: vectors
// stay float32, matrices are rounded back unless the recipe's dense type is wider.
const Format& Compressor::kept_format(const std::string& name, const Format& source,
                                      bool vector) const {
  if (!fold_ || !fold_->contains(name)) return source;
  if (vector) return dense_format(DType::f32);
  const Format& type = *recipe_.type;
  return type.dense && dtype_size(type.dtype) > dtype_size(source.dtype) ? type : source;
}

void Compressor::add_all() {
  const int head_site = static_cast<int>(plan_.sites.size());
  add(plan_.embedding, recipe_.embed_type, head_site + 1, false);
  if (!plan_.layer_embedding.empty())
    add(plan_.layer_embedding, recipe_.embed_type, head_site + 2, false);
  const auto add_site = [&](int s) {
    const Site& site = sites_[static_cast<size_t>(s)];
    if (!site.norm.empty()) add(site.norm, nullptr, -1, false);
    for (const std::string& name : site.matrices)
      add(name, recipe_.type, s, true);
    for (const std::string& name : site.plain)
      add(name, nullptr, -1, false);
  };
  for (int s = 0; s < head_site; ++s)
    add_site(s);
  for (const std::string& name : plan_.vectors)
    add(name, nullptr, -1, false);
  add(plan_.final_norm, nullptr, -1, false);
  for (int s = head_site; s < static_cast<int>(sites_.size()); ++s)
    if (is_ahead(s)) add_site(s);
  for (const std::string& name : plan_.ahead_vectors)
    add(name, nullptr, -1, false);
  if (plan_.head.empty()) return;
  const bool untied = origin(plan_.head) != plan_.head;  // the fold has untied it
  const Format* type = recipe_.head_type;
  add(plan_.head, type == nullptr && untied ? recipe_.embed_type : type, head_site, false);
}

void Compressor::add(const std::string& name, const Format* wanted, int site, bool linear) {
  if (index_.contains(name)) return;
  const Tensor source = source_.describe(origin(name));
  check_shape(name, source);
  const Format& kept = kept_format(name, *source.format, site < 0);
  TensorPlan t;
  t.name = name;
  t.rows = source.rows;
  t.cols = source.cols;
  t.source = source.format->dtype;
  t.site = site;
  t.linear = linear;
  if (const auto part = plan_.experts.find(name); part != plan_.experts.end())
    t.expert = part->second.expert;
  t.format = wanted ? wanted : &kept;
  if (site >= 0) {
    for (const TensorRule& rule : recipe_.rules) {
      if (!rule.matches(name, rule_steps_)) continue;
      t.format = rule.format ? rule.format : &kept;
      break;
    }
    const int64_t width = sites_[static_cast<size_t>(site)].width;
    if (width != 0 && source.cols != width) {
      throw Error(
          ErrorCode::bad_input, path() + ": tensor " + name,
          "found " + std::to_string(source.cols) + " columns, expected " + std::to_string(width));
    }
    t.format = &format_at(*t.format, recipe_.encode.effort);
    for (int pass = 0; pass < t.format->passes; ++pass) {
      t.rotation[pass] =
          rotation_for(recipe_, *t.format, sites_[static_cast<size_t>(site)].name, pass);
    }
    // A residual pass keeps a rotation of its own, because the error that the first pass leaves is
    // not Gaussian in the first one's basis.
    if (fold_ && fold_->input_rotated(name)) t.rotation[0] = kNoRotation;
    const bool both = recipe_.rotate == RotateAt::both && linear && t.format->rotation_block != 0;
    if (both && t.rows % kRotatedRows == 0) {
      t.output_rotation =
          rotation_of_outputs(fold_rotation(recipe_), sites_[static_cast<size_t>(site)].name);
    }
  }
  index_[name] = tensors_.size();
  tensors_.push_back(std::move(t));
}

// Refuses a shape that does not fit the config, because no program could load the result.
void Compressor::check_shape(const std::string& name, const Tensor& source) const {
  const auto found = plan_.shapes.find(name);
  if (found == plan_.shapes.end()) return;
  const auto [rows, cols] = found->second;
  if (source.rows == rows && source.cols == cols) return;
  throw Error(ErrorCode::bad_input, path() + ": tensor " + name,
              "shape is " + shape_text(std::array{source.rows, source.cols}) + ", expected " +
                  shape_text(std::array{rows, cols}));
}

void Compressor::refuse_unknown() {
  for (const std::string& name : source_.names()) {
    if (index_.contains(name)) continue;
    if (std::find(plan_.ignored.begin(), plan_.ignored.end(), name) != plan_.ignored.end()) {
      continue;
    }
    throw Error(ErrorCode::bad_input, path() + ": tensor " + name,
                "the architecture in config.json has no such tensor");
  }
  for (const TensorRule& rule : recipe_.rules) {
    const bool used = std::any_of(tensors_.begin(), tensors_.end(), [&](const TensorPlan& t) {
      return t.site >= 0 && rule.matches(t.name, rule_steps_);
    });
    if (!used) {
      throw Error(ErrorCode::usage, rule.pattern,
                  "this rule matches no weight matrix of the checkpoint");
    }
  }
}

void Compressor::calibrate(std::shared_ptr<InputStatistics> statistics) {
  calibration_.emplace(std::move(statistics), pool_);
}

void Compressor::use_curvature(std::shared_ptr<const CurvatureFiles> curvature) {
  curvature_ = std::move(curvature);
}

Calibration& Compressor::calibration() {
  if (!calibration_) {
    throw Error(ErrorCode::internal, path(),
                "the recipe has a calibration text, but nothing was "
                "measured on it");
  }
  return *calibration_;
}

std::vector<std::string> Compressor::names() const {
  std::vector<std::string> result;
  for (const TensorPlan& t : tensors_)
    result.push_back(t.name);
  return result;
}

const Format& Compressor::format_of(const std::string& name) const {
  const auto it = index_.find(name);
  if (it == index_.end()) {
    throw Error(ErrorCode::bad_input, path() + ": tensor " + name,
                "the checkpoint lacks this tensor");
  }
  return *tensors_[it->second].format;
}

double Compressor::nmse(const std::string& name) const {
  const auto it = nmse_.find(name);
  return it == nmse_.end() ? 0.0 : it->second;
}

template <typename Body>
void Compressor::with_rows(const TensorPlan& plan, const Tensor& source,
                           std::span<const float> scales, const Body& body) {
  try {
    body([&](int64_t begin, int64_t end, float* out) {
      read_scaled_rows(source, scales, begin, end, out);
    });
  } catch (const Error& e) {
    if (e.code() != ErrorCode::bad_input) throw;
    throw Error(e.code(), path() + ": tensor " + plan.name, e.reason());
  }
}

void Compressor::settle_formats() {
  if (settled_) return;
  for (TensorPlan& plan : tensors_) {
    const Codec& codec = codec_of(*plan.format);
    const Format* finer = codec.finer_scales ? codec.finer_scales(*plan.format) : nullptr;
    if (finer != nullptr && misfit(plan) > kLargestMisfit) plan.format = finer;
  }
  settled_ = true;
}

// Returns the share of variance that the scales would leave unexplained. With calibration it is
// that of the balancing without, because measuring comes later, layer by layer.
double Compressor::misfit(const TensorPlan& plan) {
  double result = 0;
  const bool balanced = balanced_[static_cast<size_t>(plan.site)];
  const Site& site = sites_[static_cast<size_t>(plan.site)];
  std::vector<float> scales;
  if (balanced && !recipe_.calibration) scales = this->scales(plan.site);
  if (balanced && recipe_.calibration && !site.norm.empty()) scales = balance(site, gain(site));
  const Tensor source = recipe_.calibration ? read_plain(plan.name) : read(plan.name);
  with_rows(plan, source, scales, [&](ReadRows read_rows) {
    result = codec_of(*plan.format)
                 .scale_misfit(plan.rotation[0], plan.rows, plan.cols, read_rows, pool_);
  });
  release(plan.name);
  return result;
}

std::optional<Checksum> Compressor::encoding_key(const std::string& name) {
  const TensorPlan& plan = tensors_[index_.at(name)];
  if (!codec_of(*plan.format).slow_to_encode) return std::nullopt;
  const Tensor source = read(name);
  const Rotation& r = plan.rotation[0];
  const std::string settings = std::string(kVersion) + " " + std::string(plan.format->name) + " " +
                               std::string(source.format->name) + " " + std::to_string(plan.rows) +
                               " " + std::string(rotation_kind_name(r.kind)) + " " +
                               std::to_string(r.block) + " " + std::to_string(r.seed) + " " +
                               std::to_string(r.signs) + " " +
                               (recipe_.encode.effort == Effort::full ? "full" : "fast");
  ChecksumStream sum;
  sum.update(std::as_bytes(std::span(settings)));
  if (balanced_[static_cast<size_t>(plan.site)]) {
    sum.update(std::as_bytes(std::span(scales(plan.site))));
  }
  sum.update(source.data);
  if (fed_back(plan)) {
    const Checksum measured = calibration().checksum(plan.site, plan.expert);
    sum.update(std::as_bytes(std::span(&measured, 1)));
  }
  if (fed_back_above(plan)) {
    const Checksum measured = curvature_->checksum(source_, origin(name));
    sum.update(std::as_bytes(std::span(&measured, 1)));
  }
  return sum.digest();
}

void Compressor::use_gpu(int device) {
  gpu_ = std::make_unique<cuda::GpuEncoder>(device, &pool_);
  gpu_index_ = device;
}

void Compressor::encode_on(const Device& device) {
  use_gpu(device.index);
  keep_on_gpu_ = true;
}

Tensor Compressor::encode_on_gpu(const TensorPlan& plan, const Tensor& source) {
  Tensor tensor;
  with_rows(plan, source, column_scales(plan.name), [&](ReadRows read_rows) {
    double error = 0, norm = 0;
    const auto encode = keep_on_gpu_ && !is_looked_up(plan) ? &cuda::GpuEncoder::encode_on_device
                                                            : &cuda::GpuEncoder::encode_to_host;
    tensor = (*gpu_.*encode)(*plan.format, plan.rotation, recipe_.encode, source,
                             column_scales(plan.name), &error, &norm);
    Tensor on_host = tensor;
    if (tensor.on_gpu && may_have_lost_scales(*plan.format, error, norm)) {
      on_host = gpu_->encode_to_host(*plan.format, plan.rotation, recipe_.encode, source,
                                     column_scales(plan.name), &error, &norm);
    }
    if (!on_host.on_gpu) refuse_lost_scales(on_host, read_rows, pool_, error, norm);
    nmse_[plan.name] = norm > 0 ? error / norm : 0.0;
  });
  return tensor;
}

std::vector<std::string> Compressor::notes() const {
  std::vector<std::string> notes = source_.notes();
  if (recipe_.head_type_chosen && plan_.head.empty())
    notes.push_back("--head-type changes nothing: the output head is the embedding (--embed-type)");
  const bool measured = std::any_of(tensors_.begin(), tensors_.end(), [&](const TensorPlan& t) {
    return fed_back(t) || t.fed_site >= 0;
  });
  if (recipe_.calibration && !measured)
    notes.push_back("--calibrate changes nothing: no type that was chosen is rounded by a text");
  if (calibration_ && measured && !calibration_->note().empty())
    notes.push_back(calibration_->note());
  return notes;
}

// A tensor that stays as it is, or that is looked up (the embedding), has no errors to feed back.
bool Compressor::fed_back(const TensorPlan& plan) const {
  return recipe_.calibration && plan.site >= 0 && !is_looked_up(plan) && !is_ahead(plan.site) &&
         (codec_of(*plan.format).encode_with_feedback != nullptr || fed_back_above(plan));
}

int Compressor::measured_site(const TensorPlan& plan) const {
  if (!recipe_.calibration) return -1;
  if (plan.folded_site >= 0) return plan.folded_site;
  if (plan.plain_site >= 0) return plan.plain_site;
  return fed_back(plan) ? plan.site : plan.fed_site;
}

void Compressor::measure(const TensorPlan& plan) {
  if (const int site = measured_site(plan); site >= 0) calibration().measure(site);
}

// The head is left out, because the moments of all of its outputs would take too much memory.
bool Compressor::fed_back_above(const TensorPlan& plan) const {
  return curvature_ && recipe_.calibration && plan.linear && !is_ahead(plan.site) &&
         codec_of(*plan.format).encode_two_sided != nullptr;
}

Compressor::Feedback Compressor::feedback(const TensorPlan& plan) {
  if (!fed_back(plan)) return {};
  if (!calibration().suffices(plan.site, plan.expert)) {
    uncalibrated_.insert(plan.name);
    return {};
  }
  return {calibration().feedback(plan.site, plan.expert, column_scales(plan.name),
                                 plan.rotation[plan.format->passes - 1],
                                 padded_cols(*plan.format, plan.cols)),
          fed_back_above(plan) ? output_feedback(plan) : nullptr};
}

// Returns the feedback at the outputs of a matrix. Its factors are for rows as read() makes them,
// which folds, then scales, then rotates. No rows are both folded and scaled.
std::shared_ptr<const ErrorFeedback> Compressor::output_feedback(const TensorPlan& plan) {
  const auto moments = curvature_->moments(source_, origin(plan.name), plan.rows);
  if (!moments) return nullptr;
  std::vector<float> factors;
  if (plan.fed_site >= 0) {
    const Site& fed = sites_[static_cast<size_t>(plan.fed_site)];
    factors = feeder_factors(fed.feeder, scales(plan.fed_site), plan.rows);
  }
  std::function<void(float*)> rotate;
  if (fold_) rotate = fold_->output_rotation(plan.name, plan.rows);
  if (plan.output_rotation.kind != RotationKind::none) {
    const auto rotator = std::make_shared<const Rotator>(plan.output_rotation, plan.rows);
    rotate = [rotator](float* y) { rotator->apply(y); };
  }
  try {
    return std::make_shared<const ErrorFeedback>(
        ErrorFeedback::of_outputs(*moments, factors, rotate, pool_));
  } catch (const Error& e) {
    if (!e.where().empty()) throw;
    throw Error(e.code(), curvature_->path() + ": tensor " + origin(plan.name), e.reason());
  }
}

Tensor Compressor::encode(const TensorPlan& plan, const Tensor& source) {
  const bool gpu = gpu_ && plan.site >= 0 && !fed_back(plan);
  if (gpu && gpu_->supports(*plan.format, plan.rotation, plan.cols)) {
    return encode_on_gpu(plan, source);
  }
  const Feedback feedback = this->feedback(plan);
  Encoded encoded = encode_rows(plan, source, column_scales(plan.name), feedback,
                                gpu_ ? &gpu_->tiles() : nullptr, pool_);
  nmse_[plan.name] = encoded.nmse;
  return std::move(encoded.tensor);
}

Compressor::Encoded Compressor::encode_rows(const TensorPlan& plan, const Tensor& source,
                                            std::span<const float> scales, const Feedback& feedback,
                                            detail::TileDevice* device, ThreadPool& pool) {
  Encoded result;
  with_rows(plan, source, scales, [&](ReadRows read_rows) {
    double error = 0, norm = 0;
    result.tensor =
        encode_tensor(*plan.format, plan.rotation, recipe_.encode, plan.rows, plan.cols, read_rows,
                      pool, &error, &norm, feedback.inputs.get(), device, feedback.outputs.get());
    refuse_lost_scales(result.tensor, read_rows, pool, error, norm);
    result.nmse = norm > 0 ? error / norm : 0.0;
  });
  return result;
}

void Compressor::check_finite(const std::string& name, const Tensor& tensor) const {
  try {
    detail::refuse_not_finite(tensor, pool_);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::bad_input) throw;
    throw Error(e.code(), path() + ": tensor " + name, e.reason());
  }
}

Tensor Compressor::load(const std::string& name) {
  const auto it = index_.find(name);
  if (it == index_.end()) {
    throw Error(ErrorCode::bad_input, path() + ": tensor " + name,
                "the checkpoint lacks this tensor");
  }
  const TensorPlan& plan = tensors_[it->second];
  if (auto begun = begun_.extract(name)) return finish(plan, std::move(begun.mapped()));
  const Tensor source = plan.folded_site >= 0 ? folded_gain(plan) : read(name);
  if (plan.format != source.format) return encode(plan, source);
  check_finite(name, source);
  return source;
}

}  // namespace walsh
