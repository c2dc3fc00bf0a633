// Qwen3-VL and Qwen 3.5 have a tower with 2-D rope and a table of positions that is stretched over
// the image. Blocks of patches become one row each. In Qwen3-VL some layers of the tower give more
// rows, which are added to the outputs of the first layers of the text ("deepstack").
#include <cmath>

#include "vision/family.h"
#include "walsh/error.h"

namespace walsh::vision {
namespace {

using Kind = RowStep::Kind;

constexpr float kEps = 1e-6F;

// Returns the steps that make a row of a block of patches. The norm comes before
// the patches are merged, or after.
std::vector<RowStep> merger(const std::string& name, int64_t width, int64_t side, int64_t out,
                            bool norm_first) {
  const int64_t merged = width * side * side;
  const RowStep norm = {.kind = Kind::layer_norm, .name = name + ".norm", .eps = kEps};
  const RowStep merge = {.kind = Kind::merge, .side = side};
  return {norm_first ? norm : merge,
          norm_first ? merge : norm,
          {.kind = Kind::product, .name = name + ".linear_fc1", .width = merged, .bias = true},
          {.kind = Kind::activate, .activation = Activation::gelu},
          {.kind = Kind::product, .name = name + ".linear_fc2", .width = out, .bias = true}};
}

TowerDesc read_tower(const TowerReader& reader) {
  TowerDesc tower;
  tower.prefixes = {"model.visual.", "visual."};
  tower.names = {"blocks.",       "norm1",     "",      "", "",
                 "attn.qkv",      "attn.proj", "norm2", "", "mlp.linear_fc1",
                 "mlp.linear_fc2"};
  tower.patch_name = "patch_embed.proj";
  tower.position_name = "pos_embed";
  tower.frames = reader.size("temporal_patch_size", 2, 16);
  tower.bias = true;
  tower.eps = kEps;
  tower.activation = reader.activation("hidden_act", "gelu_pytorch_tanh");
  tower.rope_theta = reader.rope_theta(10000);
  reader.read_sizes(tower, 1152, 4304, reader.size("depth", 27, 1000),
                    reader.size("num_heads", 16, 1000), 16);
  const int64_t entries = reader.size("num_position_embeddings", 2304);
  tower.table_side = static_cast<int64_t>(std::sqrt(static_cast<double>(entries)));
  if (tower.table_side * tower.table_side != entries)
    reader.refuse("num_position_embeddings", "expected a square");
  tower.interpolated = true;
  return tower;
}

// The processor cuts images into patches by numbers of its own.
void check_sizes(const VisionFiles& files, const TowerDesc& tower, int64_t side) {
  const auto expect = [&](const char* key, int64_t size) {
    if (find_int(files.processor, key, files.processor_where).value_or(size) != size)
      throw Error(ErrorCode::bad_input, files.processor_where,
                  std::string("'") + key + "' is not that of the vision_config");
  };
  expect("patch_size", tower.patch);
  expect("merge_size", side);
  expect("temporal_patch_size", tower.frames);
}

VisionModel read_qwen(const VisionFiles& files, const std::vector<int64_t>& deep,
                      int32_t image_token) {
  const TowerReader reader(files);
  VisionModel model;
  TowerDesc& tower = model.tower;
  tower = read_tower(reader);
  const int64_t side = reader.size("spatial_merge_size", 2, 64);
  const int64_t out = reader.size("out_hidden_size", 3584);
  const Json& text = get_object(files.config, "text_config", files.where);
  if (find_int(text, "hidden_size", files.where, 1, 1 << 20).value_or(out) != out)
    reader.refuse("out_hidden_size", "expected the hidden_size of the text");
  tower.after = merger("merger", tower.width, side, out, true);
  for (const int64_t layer : reader.layers("deepstack_visual_indexes", deep, tower.layers)) {
    const std::string name = "deepstack_merger_list." + std::to_string(tower.branches.size());
    tower.branches.push_back({layer, merger(name, tower.width, side, out, false)});
  }

  PreprocessRule defaults;
  defaults.sizing = Sizing::area;
  defaults.min_pixels = 56 * 56;
  defaults.max_pixels = 28 * 28 * 1280;
  set_normalization(defaults, kClipMean, kClipDeviation);
  model.preprocess = read_preprocess(files.processor, defaults, files.processor_where);
  model.preprocess.step = tower.patch * side;
  check_sizes(files, tower, side);

  model.prompt.image = token_of(files, "image_token_id", image_token);
  model.prompt.placeholder = model.prompt.image;
  model.prompt.axes = true;
  return model;
}

}  // namespace

VisionModel read_qwen3_vl(const VisionFiles& files) {
  return read_qwen(files, {8, 16, 24}, 151655);
}

VisionModel read_qwen35(const VisionFiles& files) {
  return read_qwen(files, {}, 248056);
}

}  // namespace walsh::vision
