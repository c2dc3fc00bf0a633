#include "walsh/quantizer.h"

#include "api/convert.h"
#include "formats/tensor.h"
#include "model/tensors.h"
#include "quantize/open.h"
#include "quantize/pipeline.h"
#include "walsh/error.h"

namespace walsh {
namespace {

const Format* format_or_null(const std::string& name) {
  return name.empty() ? nullptr : &get_format(name);
}

}  // namespace

Recipe to_recipe(const CompressOptions& options) {
  Recipe recipe;
  recipe.type = &get_format(options.type);
  recipe.embed_type = format_or_null(options.embed_type);
  recipe.head_type = format_or_null(options.head_type);
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

CompressReport quantize(const std::string& in, const std::string& out,
                        const CompressOptions& options, int threads,
                        const CompressProgress& progress) {
  ThreadPool pool(threads);
  const auto source = open_compressor(in, to_recipe(options), read_plan, pool);
  const QuantizeSummary summary = quantize_to_file(*source, out, [&](const QuantizeProgress& step) {
    if (progress && !progress(step.index, step.count)) {
      throw Error(ErrorCode::interrupted, out, "stopped by the caller");
    }
  });
  return {summary.file_bytes, summary.bits_per_weight()};
}

std::vector<FormatSummary> formats() {
  std::vector<FormatSummary> result;
  for (const Format& f : all_formats()) {
    result.push_back({std::string(f.name), nominal_bits(f), f.bound, std::string(f.note)});
  }
  return result;
}

}  // namespace walsh
