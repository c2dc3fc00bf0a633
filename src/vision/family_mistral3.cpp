// Mistral 3 has the tower of Pixtral with 2-D rope. Its projector merges patches and has two
// products.
#include "vision/family.h"
#include "walsh/error.h"

namespace walsh::vision {
namespace {

using Kind = RowStep::Kind;

constexpr float kTowerEps = 1e-5F;

TowerDesc read_tower(const VisionFiles& files, int64_t side) {
  const TowerReader reader(files);
  TowerDesc tower;
  tower.prefixes = {"vision_tower.", "model.vision_tower.", "", "model."};
  tower.names = {"transformer.layers.",    "attention_norm",
                 "attention.q_proj",       "attention.k_proj",
                 "attention.v_proj",       "",
                 "attention.o_proj",       "ffn_norm",
                 "feed_forward.gate_proj", "feed_forward.up_proj",
                 "feed_forward.down_proj"};
  tower.patch_name = "patch_conv";
  tower.rms = true;
  tower.eps = kTowerEps;
  tower.activation = reader.activation("hidden_act", "gelu");
  tower.rope_theta = reader.rope_theta(10000);
  tower.column_shift = 2;
  reader.read_sizes(tower, 1024, 4096, 24, 16, 16);
  tower.before = {{.kind = Kind::rms_norm, .name = "ln_pre", .eps = kTowerEps}};

  const Json& config = files.config;
  const std::string& where = files.where;
  const Json& text = get_object(config, "text_config", where);
  const int64_t width = get_int(text, "hidden_size", where, 1, 1 << 20);
  const bool newer = find_string(text, "model_type", where).value_or("") == "ministral3";
  const auto eps = static_cast<float>(
      find_number(text, "rms_norm_eps", where, 0, 1).value_or(newer ? 1e-5 : 1e-6));
  const bool bias = find_bool(config, "multimodal_projector_bias", where).value_or(false);
  const Activation activation =
      parse_activation(find_string(config, "projector_hidden_act", where).value_or("gelu"),
                       where + ": projector_hidden_act");
  const std::string projector = "multi_modal_projector.";
  tower.after = {
      {.kind = Kind::rms_norm, .name = projector + "norm", .eps = eps},
      {.kind = Kind::merge, .side = side, .by_channel = true},
      {.kind = Kind::product,
       .name = projector + "patch_merger.merging_layer",
       .width = tower.width},
      {.kind = Kind::product, .name = projector + "linear_1", .width = width, .bias = bias},
      {.kind = Kind::activate, .activation = activation},
      {.kind = Kind::product, .name = projector + "linear_2", .width = width, .bias = bias}};
  return tower;
}

// Makes the tower end at the layer whose hidden states the config names. They are counted from the
// end, where -1 stands for the last layer's.
void choose_layers(const VisionFiles& files, TowerDesc& tower) {
  const auto found = files.config.find("vision_feature_layer");
  if (found == files.config.end() || found->is_null()) return;
  const int64_t layer =
      get_int(files.config, "vision_feature_layer", files.where, -tower.layers - 1, tower.layers);
  tower.layers = layer < 0 ? tower.layers + 1 + layer : layer;
}

}  // namespace

VisionModel read_mistral3(const VisionFiles& files) {
  const int64_t side = find_int(files.config, "spatial_merge_size", files.where, 1, 64).value_or(2);
  VisionModel model;
  model.tower = read_tower(files, side);
  choose_layers(files, model.tower);

  PreprocessRule defaults;
  defaults.sizing = Sizing::box;
  defaults.height = defaults.width = 1024;
  set_normalization(defaults, kClipMean, kClipDeviation);
  model.preprocess = read_preprocess(files.processor, defaults, files.processor_where);
  model.preprocess.step = model.tower.patch * side;

  model.prompt.image = token_of(files, "image_token_index", 10);
  model.prompt.placeholder = model.prompt.image;
  model.prompt.row_end = image_token(files, "[IMG_BREAK]");
  model.prompt.end = image_token(files, "[IMG_END]");
  return model;
}

}  // namespace walsh::vision
