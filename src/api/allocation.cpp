#include "api/allocation.h"

#include <fmt/format.h>

#include <optional>

#include "allocate/sensitivity_file.h"
#include "allocate/stand_in.h"
#include "api/load.h"
#include "arch/plan.h"
#include "io/checksum.h"
#include "io/printable.h"
#include "quantize/pipeline/open.h"
#include "text/text_file.h"
#include "weights/open.h"

namespace walsh {
namespace {

// All compressors share one set of statistics, so every recipe sees the same activations.
OpenCompressor opener(const AllocationRequest& request,
                      std::optional<PreparedCalibration> calibration, ThreadPool& pool) {
  return [&, calibration = std::move(calibration)](Recipe recipe) {
    if (calibration) recipe.calibration = calibration->description;
    auto compressor = open_compressor(request.folder, recipe, pool);
    if (calibration) {
      compressor->calibrate(calibration->statistics);
      compressor->use_curvature(calibration->curvature);
    }
    return compressor;
  };
}

std::vector<const Format*> candidates_of(const AllocationRequest& request) {
  std::vector<const Format*> formats;
  for (const std::string& name : request.candidates)
    formats.push_back(&get_format(name));
  return formats.empty() ? default_candidates() : formats;
}

std::string text_id(const std::string& text) {
  return text.empty() ? "none" : checksum(std::as_bytes(std::span(text))).hex();
}

// Identifies a checkpoint by its weights and by the files that determine the model's function and
// tokens. Reading it takes seconds; using another checkpoint's measurements would waste hours.
std::string checkpoint_id(WeightSource& source) {
  ChecksumStream sum;
  for (const std::string_view text :
       {source.config_json(), source.tokenizer_json(), source.tokenizer_config_json()}) {
    const uint64_t size = text.size();
    sum.update(std::as_bytes(std::span(&size, 1)));
    sum.update(std::as_bytes(std::span(text)));
  }
  for (const std::string& name : source.names()) {
    const Tensor tensor = source.load(name);
    sum.update(std::as_bytes(std::span(name)));
    sum.update(tensor.data);
    for (const PassArrays& pass : tensor.pass) {
      sum.update(pass.codes);
      sum.update(pass.scales);
    }
    source.release(name);
  }
  return sum.digest().hex();
}

// Describes the conditions on which the damage of a single tensor depends.
std::string conditions(const AllocationRequest& request, const Recipe& base,
                       const std::optional<PreparedCalibration>& calibration,
                       const std::string& checkpoint, const std::string& text) {
  Recipe plain = base;
  plain.type = &dense_format(DType::f32);
  if (calibration) plain.calibration = calibration->description;
  return fmt::format("model {}, text {}, windows of {}: {}, errors of {}, {}", checkpoint,
                     text_id(text), request.options.ctx, request.options.windows,
                     stand_in_for(candidates_of(request)).name, recipe_json(plain));
}

}  // namespace

Allocation allocate_checkpoint(AllocationRequest request, const Recipe& base,
                               const LoadOptions& load) {
  ThreadPool& pool = *load.pool;
  AllocateOptions& options = request.options;
  options.candidates = candidates_of(request);
  options.device = request.calibration.device;
  // Reports errors in the file and the folder before anything is measured.
  read_sensitivity(options.sensitivity_file);
  open_compressor(request.folder, base, pool);
  const auto source = open_weights(request.folder, nullptr, pool);
  check_texts(*source);
  const ModelConfig config = read_config(*source);
  options.ctx = std::min(options.ctx, config.max_positions);
  options.text.clear();
  const bool usable = !config.bos.empty() && config.bos.front() < config.vocab;
  options.bos = usable ? config.bos.front() : -1;
  std::string text;
  if (!request.text.empty()) {
    const Tokenizer tokenizer = read_tokenizer(*source);
    text = read_utf8_text(request.text);
    options.text = tokenizer.encode(text, false);
    options.bos = tokenizer.added_bos().value_or(-1);
  }
  std::optional<PreparedCalibration> calibration;
  if (!request.calibration.text.empty())
    calibration = prepare_calibration(request.folder, base, request.calibration, pool);
  if (!options.sensitivity_file.empty())
    options.conditions = conditions(request, base, calibration, checkpoint_id(*source), text);
  return allocate(opener(request, std::move(calibration), pool), base, options, load);
}

}  // namespace walsh
