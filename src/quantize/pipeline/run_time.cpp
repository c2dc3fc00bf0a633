#include "quantize/pipeline/run_time.h"

namespace walsh {
namespace {

constexpr const char* kMeasuring = "measuring a layer";
// One core needs this many nanoseconds to run a token through a weight and to add up the moments.
constexpr double kMeasuringCost = 0.05;

// Returns the first number in the name, which tells the layer, or an empty text if there is none.
std::string layer_of(const std::string& tensor) {
  const size_t begin = tensor.find_first_of("0123456789");
  if (begin == std::string::npos) return "";
  return tensor.substr(begin, tensor.find_first_not_of("0123456789", begin) - begin);
}

double weights_of(const TensorPlan& plan) {
  return static_cast<double>(plan.rows) * static_cast<double>(plan.cols);
}

}  // namespace

RunTime::RunTime(const Compressor& source) : encode_(source.recipe().encode) {
  std::map<std::string, double> weights;  // each layer has this many weights
  for (const TensorPlan& plan : source.tensors()) {
    estimate_.add(step_kind(plan.name, *plan.format), work(plan));
    if (plan.linear) weights[layer_of(plan.name)] += weights_of(plan);
  }
  if (!source.recipe().calibration) return;
  const auto tokens = static_cast<double>(source.recipe().calibration->tokens);
  for (const TensorPlan& plan : source.tensors()) {
    if (source.measured_site(plan) < 0) continue;
    const auto layer = weights.extract(layer_of(plan.name));
    if (layer.empty()) continue;  // it is measured with its first tensor
    measuring_[plan.name] = kMeasuringCost * tokens * layer.mapped();
    estimate_.add(kMeasuring, measuring_[plan.name]);
  }
}

double RunTime::work(const TensorPlan& plan) const {
  const bool converted = plan.format->dense && plan.format->dtype != plan.source;
  return weights_of(plan) * encoding_cost(*plan.format, encode_, converted);
}

double RunTime::lap() {
  const auto before = last_;
  last_ = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(last_ - before).count();
}

void RunTime::measured(const TensorPlan& plan) {
  const auto layer = measuring_.find(plan.name);
  if (layer != measuring_.end()) estimate_.finish(kMeasuring, layer->second, lap());
}

void RunTime::written(const TensorPlan& plan, bool resumed) {
  const std::string kind = step_kind(plan.name, *plan.format);
  const double seconds = lap();
  resumed ? estimate_.skip(kind, work(plan)) : estimate_.finish(kind, work(plan), seconds);
}

}  // namespace walsh
