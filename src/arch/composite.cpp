#include "arch/composite.h"

#include <algorithm>
#include <array>

#include "arch/config_reader.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr auto kComposites = std::to_array<Composite>({
    {"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text"},
    {"gemma4", "Gemma4ForConditionalGeneration", "gemma4_text"},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text"},
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5_text"},
    {"qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_text"},
    {"qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe_text"},
    {"mistral3", "Mistral3ForConditionalGeneration", "mistral"},
    {"llama4", "Llama4ForConditionalGeneration", "llama4_text"},
});

constexpr const char* kText = "text_config";

// These keys describe other parts than the text part, and the tokens that stand for their input.
constexpr auto kOtherParts = std::to_array<const char*>({
    "audio_config",
    "audio_token_id",
    "boa_token_id",
    "boi_token_id",
    "boi_token_index",
    "eoa_token_id",
    "eoa_token_index",
    "eoi_token_id",
    "eoi_token_index",
    "image_token_id",
    "image_token_index",
    "mm_tokens_per_image",
    "multimodal_projector_bias",
    "projector_hidden_act",
    "spatial_merge_size",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_feature_layer",
    "vision_soft_tokens_per_image",
    "vision_start_token_id",
});

// These keys of the whole model replace the same keys of the text part.
constexpr auto kForAllParts = std::to_array<const char*>(
    {"bos_token_id", "eos_token_id", "quantization_config", "tie_word_embeddings"});

// transformers changed the names of these tensors in version 4.52; checkpoints have either.
constexpr auto kTextNames = std::to_array<NameRule>({
    {"language_model.model.", "model."},
    {"language_model.lm_head.", "lm_head."},
    {"model.language_model.", "model."},
    {"vision_tower.", "", true},
    {"multi_modal_projector.", "", true},
    {"visual.", "", true},
    {"vision_model.", "", true},
    {"model.vision_tower.", "", true},
    {"model.multi_modal_projector.", "", true},
    {"model.visual.", "", true},
    {"model.audio_tower.", "", true},
    {"model.embed_audio.", "", true},
    {"model.embed_vision.", "", true},
});

}  // namespace

const Composite* find_composite(const Json& object) {
  const auto text = object.is_object() ? object.find(kText) : object.end();
  if (text == object.end() || !text->is_object()) return nullptr;
  const auto says = [&](const char* key, std::string_view expected) {
    const auto found = object.find(key);
    if (found == object.end()) return false;
    const bool list = found->is_array() && found->size() == 1;
    const Json& value = list ? found->front() : *found;
    return value.is_string() && value.get_ref<const std::string&>() == expected;
  };
  const auto found =
      std::find_if(kComposites.begin(), kComposites.end(), [&](const Composite& composite) {
        return object.contains("architectures") ? says("architectures", composite.architecture)
                                                : says("model_type", composite.model_type);
      });
  return found == kComposites.end() ? nullptr : &*found;
}

Json text_config(const Json& object, const Composite& composite, const std::string& where) {
  ConfigReader reader(object, where);
  const auto type = reader.text("model_type");
  if (type && *type != composite.model_type)
    reader.refuse("model_type", "expected '" + std::string(composite.model_type) + "'");
  Json text = *reader.value(kText);
  if (!text.contains("model_type")) text["model_type"] = composite.text_type;
  for (const char* key : kForAllParts)
    if (const Json* value = reader.value(key); value != nullptr) text[key] = *value;
  for (const char* key : kOtherParts)
    reader.value(key);
  reader.finish();
  return text;
}

std::span<const NameRule> text_names() {
  return kTextNames;
}

std::string supported_composites() {
  std::string list;
  for (const Composite& composite : kComposites)
    list += (list.empty() ? "" : ", ") + std::string(composite.architecture);
  return list;
}

}  // namespace walsh
