// The dense HunYuan is Llama with norms of queries and keys after their rope. A fixed factor may
// stretch the base of the rope.
#include <cmath>

#include "arch/family.h"

namespace walsh {
namespace {

// transformers does not read these keys of published files, in which only these values exist. It
// does not read those for training, pictures and other classes either.
void read_published(ConfigReader& reader, const DecoderTraits& traits) {
  reader.only("use_qk_norm", true);
  reader.only("use_rotary_pos_emb", true);
  if (const auto type = reader.text("norm_type"); type && *type != "rms" && *type != "hf_rms")
    reader.refuse("norm_type", "expected 'rms' or 'hf_rms'");
  reader.only("attention_head_dim", traits.layers.front().head_dim);
  for (const char* key :
       {"use_cla", "add_classification_head", "position_embedding_xdrope", "skip_cls_token"})
    reader.only(key, false);
  for (const char* key :
       {"cla_share_factor", "class_num", "eod_token_id", "im_end_id", "im_newline_id",
        "im_start_id", "image_token_id", "mask_init_id", "num_media_embeds", "org_vocab_size",
        "pool_type", "text_end_id", "text_start_id", "xdrope_section", "enable_lm_head_fp32"})
    reader.value(key);
}

void read_hunyuan_dense(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  traits.names.q_norm = "self_attn.query_layernorm";
  traits.names.k_norm = "self_attn.key_layernorm";
  traits.qk_norm = true;
  for (LayerTraits& layer : traits.layers)
    layer.norms_turned = true;
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  if (reader.value("head_dim") == nullptr) reader.refuse("head_dim", "expected a number");
  const auto dim = static_cast<double>(traits.layers.front().head_dim);
  for (RopeConfig& rope : config.ropes)
    rope.theta *= std::pow(rope.alpha, dim / (dim - 2));
  read_published(reader, traits);
}

}  // namespace

const Family kHunYuanDense = {
    "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", read_hunyuan_dense, {.alpha = true}};

}  // namespace walsh
