#include "arch/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace walsh {
namespace {

// These keys have no effect on the logits of the next token. They are bookkeeping, about training,
// defaults of generation (which generate/generation_config.h reads), or keys that old versions of
// transformers wrote into every file.
constexpr auto kInertKeys = std::to_array<std::string_view>({
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "auto_map",  // It names Python code in the folder, which walsh never runs.
    "bad_words_ids",
    "begin_suppress_tokens",
    "cache_implementation",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "max_sequence_length",
    "min_length",
    "min_p",
    "model_type",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    // These keys switch features of other models; transformers' code for the supported families
    // never reads them.
    "attention_probs_dropout_prob",
    "embd_pdrop",
    "hidden_dropout",
    "hidden_dropout_prob",
    "resid_pdrop",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "tie_encoder_decoder",
    "training",
});

bool is_inert(std::string_view key) {
  return std::find(kInertKeys.begin(), kInertKeys.end(), key) != kInertKeys.end();
}

}  // namespace

ConfigReader::ConfigReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) {
    throw Error(ErrorCode::bad_input, where_,
                fmt::format("found {}, expected an object", describe_json(object)));
  }
}

bool ConfigReader::has(const char* key) const {
  return object_.contains(key);
}

bool ConfigReader::is_null(const char* key) const {
  const auto it = object_.find(key);
  return it != object_.end() && it->is_null();
}

const Json* ConfigReader::value(const char* key) {
  understood_.insert(key);
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

int64_t ConfigReader::integer(const char* key, int64_t min, int64_t max) {
  understood_.insert(key);
  return get_int(object_, key, where_, min, max);
}

double ConfigReader::number(const char* key, double min, double max) {
  understood_.insert(key);
  return get_number(object_, key, where_, min, max);
}

int64_t ConfigReader::integer_or(const char* key, int64_t fallback, int64_t min, int64_t max) {
  if (is_null(key)) refuse(key, "expected an integer, or no such key");
  return optional_integer(key, fallback, min, max);
}

double ConfigReader::number_or(const char* key, double fallback, double min, double max) {
  if (is_null(key)) refuse(key, "expected a number, or no such key");
  return optional_number(key, fallback, min, max);
}

int64_t ConfigReader::optional_integer(const char* key, int64_t fallback, int64_t min,
                                       int64_t max) {
  understood_.insert(key);
  return find_int(object_, key, where_, min, max).value_or(fallback);
}

double ConfigReader::optional_number(const char* key, double fallback, double min, double max) {
  understood_.insert(key);
  return find_number(object_, key, where_, min, max).value_or(fallback);
}

bool ConfigReader::boolean_or(const char* key, bool fallback) {
  understood_.insert(key);
  return find_bool(object_, key, where_).value_or(is_null(key) ? false : fallback);
}

std::optional<std::string> ConfigReader::text(const char* key) {
  understood_.insert(key);
  return find_string(object_, key, where_);
}

std::vector<int32_t> ConfigReader::ids(const char* key) {
  understood_.insert(key);
  return find_ids(object_, key, where_).value_or(std::vector<int32_t>());
}

void ConfigReader::refuse(const char* key, std::string_view expected) const {
  const auto it = object_.find(key);
  const std::string found = it == object_.end() ? "absent" : describe_json(*it);
  throw Error(ErrorCode::bad_input, where_, fmt::format("'{}' is {}: {}", key, found, expected));
}

bool ConfigReader::pending(const char* key) const {
  const auto it = object_.find(key);
  return it != object_.end() && !it->is_null() && !understood_.contains(key);
}

void ConfigReader::only(const char* key, const Json& supported) {
  if (!pending(key)) return;
  if (*value(key) != supported) {
    refuse(key, fmt::format("not supported, expected {}", describe_json(supported)));
  }
}

void ConfigReader::finish() const {
  for (const auto& [key, value] : object_.items()) {
    if (value.is_null() || understood_.contains(key) || is_inert(key)) continue;
    // The key is quoted as JSON, so that a hostile one cannot write control characters into the
    // message.
    throw Error(ErrorCode::bad_input, where_,
                fmt::format("unknown key {} = {} may change the function",
                            Json(key).dump(-1, ' ', true, Json::error_handler_t::replace),
                            describe_json(value)));
  }
}

}  // namespace walsh
