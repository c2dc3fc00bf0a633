// Gemma 3 has the tower of SigLIP. Its projector takes means of patches, a norm and a product.
#include <cmath>

#include "vision/family.h"
#include "walsh/error.h"

namespace walsh::vision {
namespace {

using Kind = RowStep::Kind;

}  // namespace

VisionModel read_gemma3(const VisionFiles& files) {
  const TowerReader reader(files);
  VisionModel model;
  TowerDesc& tower = model.tower;
  tower.prefixes = {"vision_tower.vision_model.",
                    "vision_tower.",
                    "model.vision_tower.",
                    "model.vision_tower.vision_model.",
                    "",
                    "model."};
  tower.names = {"encoder.layers.",
                 "layer_norm1",
                 "self_attn.q_proj",
                 "self_attn.k_proj",
                 "self_attn.v_proj",
                 "",
                 "self_attn.out_proj",
                 "layer_norm2",
                 "",
                 "mlp.fc1",
                 "mlp.fc2"};
  tower.patch_name = "embeddings.patch_embedding";
  tower.position_name = "embeddings.position_embedding";
  tower.bias = true;
  tower.activation = reader.activation("hidden_act", "gelu_pytorch_tanh");
  tower.eps = static_cast<float>(reader.number("layer_norm_eps", 1e-6));
  reader.read_sizes(tower, 768, 3072, 12, 12, 16);
  const int64_t image = reader.size("image_size", 224, 1 << 14);
  tower.table_side = image / tower.patch;
  if (tower.table_side == 0) reader.refuse("image_size", "expected at least patch_size");

  const int64_t tokens =
      find_int(files.config, "mm_tokens_per_image", files.where, 1, 1 << 20).value_or(256);
  const auto token_side = static_cast<int64_t>(std::sqrt(static_cast<double>(tokens)));
  if (token_side * token_side != tokens || tower.table_side % token_side != 0) {
    throw Error(ErrorCode::bad_input, files.where + ": mm_tokens_per_image",
                "expected the square of a divisor of the patches of a side");
  }
  const Json& text = get_object(files.config, "text_config", files.where);
  const std::string projector = "multi_modal_projector.";
  tower.after = {{.kind = Kind::layer_norm, .name = "post_layernorm", .eps = tower.eps},
                 {.kind = Kind::average, .side = tower.table_side / token_side},
                 {.kind = Kind::rms_norm,
                  .name = projector + "mm_soft_emb_norm",
                  .eps = tower.eps,
                  .gain_offset = 1},
                 {.kind = Kind::product,
                  .name = projector + "mm_input_projection_weight",
                  .width = find_int(text, "hidden_size", files.where, 1, 1 << 20).value_or(2304),
                  .turned = true}};

  PreprocessRule defaults;
  defaults.sizing = Sizing::fixed;
  defaults.height = defaults.width = 224;
  defaults.filter = Filter::bilinear;
  set_normalization(defaults, {0.5F, 0.5F, 0.5F}, {0.5F, 0.5F, 0.5F});
  model.preprocess = read_preprocess(files.processor, defaults, files.processor_where);
  if (!model.preprocess.resize || model.preprocess.height != image ||
      model.preprocess.width != image) {
    throw Error(ErrorCode::bad_input, files.processor_where,
                "images have to be resized to the tower's " + std::to_string(image) + " x " +
                    std::to_string(image) + " pixels");
  }

  PromptForm& prompt = model.prompt;
  prompt.begin = prompt.placeholder = token_of(files, "boi_token_index", 255999);
  prompt.end = token_of(files, "eoi_token_index", 256000);
  prompt.image = token_of(files, "image_token_index", 262144);
  prompt.text = "\n\n" + files.tokenizer.token(prompt.begin).value_or("") + "\n\n";
  prompt.bidirectional = true;
  return model;
}

}  // namespace walsh::vision
