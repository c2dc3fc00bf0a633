// Qwen 3.5 has a tower with 2-D rope and a table of positions that is stretched over the image.
// Blocks of patches become one row each.
#include <cmath>

#include "vision/family.h"
#include "walsh/error.h"

namespace walsh::vision {
namespace {

using Kind = RowStep::Kind;

constexpr float kEps = 1e-6F;

}  // namespace

VisionModel read_qwen35(const VisionFiles& files) {
  const TowerReader reader(files);
  VisionModel model;
  TowerDesc& tower = model.tower;
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

  const int64_t side = reader.size("spatial_merge_size", 2, 64);
  const int64_t merged = tower.width * side * side;
  tower.after = {
      {.kind = Kind::layer_norm, .name = "merger.norm", .eps = kEps},
      {.kind = Kind::merge, .side = side},
      {.kind = Kind::product, .name = "merger.linear_fc1", .width = merged, .bias = true},
      {.kind = Kind::activate, .activation = Activation::gelu},
      {.kind = Kind::product,
       .name = "merger.linear_fc2",
       .width = reader.size("out_hidden_size", 3584),
       .bias = true}};

  PreprocessRule defaults;
  defaults.sizing = Sizing::area;
  defaults.min_pixels = 56 * 56;
  defaults.max_pixels = 28 * 28 * 1280;
  set_normalization(defaults, kClipMean, kClipDeviation);
  model.preprocess = read_preprocess(files.processor, defaults, files.processor_where);
  model.preprocess.step = tower.patch * side;

  model.prompt.image = token_of(files, "image_token_id", 248056);
  model.prompt.placeholder = model.prompt.image;
  return model;
}

}  // namespace walsh::vision
