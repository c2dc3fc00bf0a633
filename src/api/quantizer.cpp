#include "walsh/quantizer.h"

#include "api/allocation.h"
#include "api/calibrate.h"
#include "api/convert.h"
#include "api/outputs.h"
#include "codec/encode/bounds.h"
#include "codec/tensor.h"
#include "io/mapped_file.h"
#include "io/staged_folder.h"
#include "quantize/pipeline/pipeline.h"
#include "quantize/recipe/recipe_file.h"
#include "walsh/error.h"
#include "weights/hub_cache.h"

namespace walsh {
namespace {

// Returns the type of embedding or head. It must be dense for a folder, which has no place for
// codes of these.
const Format* end_type(const std::string& name, const CompressOptions& options) {
  if (!name.empty()) return &get_format(name);
  const bool folder = parse_output_kind(options.output_format) == OutputKind::folder;
  return folder ? nullptr : default_ends(get_format(options.type));
}

Recipe choose_recipe(const std::string& in, const CompressOptions& options,
                     const CalibrationRequest& calibration, ThreadPool& pool) {
  const Recipe base = to_recipe(options);
  if (options.bits_per_weight == 0 && options.file_bytes == 0) return base;
  if (!options.recipe.empty()) {
    throw Error(ErrorCode::usage, "recipe",
                "says the types: leave bits_per_weight and file_bytes out");
  }
  AllocationRequest request;
  request.folder = in;
  request.text = options.allocate_text;
  request.calibration = calibration;
  request.options.bits_per_weight = options.bits_per_weight;
  request.options.file_bytes = options.file_bytes;
  LoadOptions load;
  load.pool = &pool;
  return allocate_checkpoint(std::move(request), base, load).chosen().recipe;
}

}  // namespace

Recipe to_recipe(const CompressOptions& options) {
  if (!options.recipe.empty()) {
    return parse_recipe(read_text_input(options.recipe, kMaxRecipeBytes), options.recipe);
  }
  Recipe recipe;
  recipe.type = &get_format(options.type);
  recipe.embed_type = end_type(options.embed_type, options);
  recipe.head_type = end_type(options.head_type, options);
  recipe.head_type_chosen = !options.head_type.empty();
  recipe.notes = {about_name(options.type), about_name(options.embed_type),
                  about_name(options.head_type)};
  for (const std::string& text : options.overrides)
    recipe.rules.push_back(parse_override(text));
  for (const std::string& text : options.ignore)
    recipe.rules.push_back(parse_ignore(text));
  recipe.rotation = parse_rotation_kind(options.rotation);
  recipe.rotate = parse_rotate_at(options.rotate);
  recipe.block = options.block;
  recipe.signs = options.signs;
  recipe.seed = options.seed;
  recipe.balance = options.balance;
  recipe.encode.effort = options.fast ? Effort::fast : Effort::full;
  recipe.encode.scale_rule = options.shape_gain ? ScaleRule::shape_gain : ScaleRule::search;
  check_recipe(recipe);
  return recipe;
}

CompressReport quantize(const std::string& model, const std::string& out,
                        const CompressOptions& options, int threads,
                        const CompressProgress& progress) {
  const std::string in = found_model(model);
  ThreadPool pool(threads);
  const OutputOptions output = {.kind = parse_output_kind(options.output_format)};
  const bool file = output.kind == OutputKind::file;
  if (!file) check_new_folder(out);
  CalibrationRequest calibration = {
      options.calibrate, options.calibrate_tokens, {}, {}, options.curvature};
  check_outputs({file ? out : ""}, in, {calibration.file(), options.allocate_text, options.recipe});
  if (!options.curvature.empty() && options.calibrate.empty())
    throw Error(ErrorCode::usage, "curvature", "belongs to a calibration text: set calibrate");
  calibration.read(in, pool);
  const Recipe recipe = choose_recipe(in, options, calibration, pool);
  const auto source = open_calibrated(in, recipe, calibration, pool);
  CompressReport report;
  report.notes = name_notes(recipe);
  const auto check = [&](const QuantizeProgress& step) {
    if (progress && !progress(step.index, step.count)) {
      throw Error(ErrorCode::interrupted, out, "stopped by the caller");
    }
  };
  const auto note = [&](const std::string& text) { report.notes.push_back(text); };
  const QuantizeSummary summary = quantize_to_file(*source, out, check, note, output);
  report.file_bytes = summary.file_bytes;
  report.bits_per_weight = summary.bits_per_weight();
  for (const MissedBound& m : summary.missed)
    report.notes.push_back(missed_bound_text(m.tensor, *m.format, m.nmse));
  return report;
}

std::vector<FormatSummary> formats() {
  std::vector<FormatSummary> result;
  for (const Format& f : all_formats()) {
    result.push_back({std::string(f.name), nominal_bits(f), f.bound, std::string(f.note)});
  }
  return result;
}

}  // namespace walsh
