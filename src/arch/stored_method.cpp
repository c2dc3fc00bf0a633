#include "arch/stored_method.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "arch/config_reader.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using Kind = StoredMethod::Kind;

constexpr int64_t kMaxBlock = int64_t{1} << 20;

void ignore(ConfigReader& reader, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    reader.value(key);
}

template <typename T>
void add_once(std::vector<T>& values, T value) {
  if (std::ranges::find(values, value) == values.end()) values.push_back(value);
}

// Reads a size of groups; -1 means one group of all columns.
void read_group(ConfigReader& reader, const char* key, StoredMethod& stored) {
  const int64_t group = reader.integer(key, -1, kMaxBlock);
  if (group == 0) reader.refuse(key, "expected -1 or at least one column");
  add_once(stored.groups, group);
}

// Reads one of the `supported` values, in any case of letters. An absent key gives the first of
// them.
void read_choice(ConfigReader& reader, const char* key,
                 std::initializer_list<std::string_view> supported, std::string& found) {
  std::string text = reader.text(key).value_or(std::string(*supported.begin()));
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (std::ranges::find(supported, text) != supported.end()) {
    found = text;
    return;
  }
  std::string list;
  for (const std::string_view name : supported)
    list += (list.empty() ? "" : " or ") + std::string(name);
  reader.refuse(key, "not supported, expected " + list);
}

// Reads rows and columns of the blocks that share a factor. An absent key leaves one for a matrix.
void read_block_shape(ConfigReader& reader, const char* key, StoredMethod& stored) {
  const Json* block = reader.value(key);
  if (block == nullptr) return;
  const auto is_size = [](const Json& size) {
    return size.is_number_unsigned() && size > 0 && size <= kMaxBlock;
  };
  if (!block->is_array() || block->size() != 2 || !is_size((*block)[0]) || !is_size((*block)[1]))
    reader.refuse(key, "expected rows and columns of a block");
  stored.block_rows = (*block)[0].get<int64_t>();
  stored.block_cols = (*block)[1].get<int64_t>();
}

// Skips keys that change no matrix: how other programs round activations (walsh does not), which
// tensors are not quantized (their types show it), and how transformers loads them.
void ignore_inert(ConfigReader& reader) {
  ignore(reader, {"activation_scheme", "modules_to_not_convert", "ignored_layers", "scale_fmt",
                  "dequantize"});
}

void read_fp8(ConfigReader& reader, StoredMethod& stored) {
  reader.only("fmt", "e4m3");
  read_block_shape(reader, "weight_block_size", stored);
  ignore_inert(reader);
}

void read_mxfp4(ConfigReader& reader, StoredMethod&) {
  ignore_inert(reader);
}

// Reads how compressed-tensors stores one set of weights. Shapes and types of the tensors say the
// rest.
void read_compressed_weights(const Json& object, const std::string& where, StoredMethod& stored) {
  ConfigReader reader(object, where);
  std::string type;
  read_choice(reader, "type", {"int", "float"}, type);
  const auto bits = static_cast<int>(reader.integer_or("num_bits", 8, 1, 8));
  if (type == "int") add_once(stored.widths, bits);
  if (type == "float" && bits != 4 && bits != 8)
    reader.refuse("num_bits", "expected 4 or 8 bits of a float");
  std::string strategy;
  read_choice(reader, "strategy", {"tensor", "channel", "group", "tensor_group", "block"},
              strategy);
  if (strategy == "group" || strategy == "tensor_group") read_group(reader, "group_size", stored);
  if (strategy == "block") read_block_shape(reader, "block_structure", stored);
  ignore(reader, {"actorder", "block_structure", "dynamic", "group_size", "observer",
                  "observer_kwargs", "scale_dtype", "symmetric", "zp_dtype"});
  reader.finish();
}

void read_compressed_form(ConfigReader& reader) {
  std::string form;
  read_choice(reader, "format",
              {"pack-quantized", "int-quantized", "float-quantized", "nvfp4-pack-quantized",
               "mxfp4-pack-quantized", "naive-quantized", "mixed-precision", "dense"},
              form);
}

void read_compressed_group(const Json& object, const std::string& where, StoredMethod& stored) {
  if (!object.is_object())
    throw Error(ErrorCode::bad_input, where,
                "found " + describe_json(object) + ", expected an object");
  ConfigReader reader(object, where);
  read_compressed_form(reader);
  const Json* weights = reader.value("weights");
  if (weights != nullptr && !weights->is_object()) reader.refuse("weights", "expected an object");
  if (weights != nullptr) read_compressed_weights(*weights, where + ": weights", stored);
  ignore(reader, {"input_activations", "output_activations", "targets"});
  reader.finish();
}

void read_compressed(ConfigReader& reader, StoredMethod& stored) {
  read_compressed_form(reader);
  const Json* groups = reader.value("config_groups");
  if (groups == nullptr || !groups->is_object())
    reader.refuse("config_groups", "expected an object of groups");
  for (const auto& [name, group] : groups->items())
    read_compressed_group(group, reader.where() + ": config_groups." + name, stored);
  // Sparse matrices and rotated ones are refused, because their values are not those of the model.
  for (const char* key : {"sparsity_config", "transform_config"}) {
    const Json* other = reader.value(key);
    if (other != nullptr && !other->empty()) reader.refuse(key, "not supported");
  }
  ignore(reader, {"global_compression_ratio", "ignore", "kv_cache_scheme", "moe_sparsity_config",
                  "quantization_status", "version"});
}

// Skips the keys in which tools write how they quantized.
void ignore_history(ConfigReader& reader) {
  ignore(reader, {"act_group_aware",
                  "backend",
                  "batch_size",
                  "block_name_to_quantize",
                  "cache_block_outputs",
                  "damp_percent",
                  "dataset",
                  "desc_act",
                  "disable_exllama",
                  "do_fuse",
                  "dynamic",
                  "exllama_config",
                  "fuse_max_seq_len",
                  "lm_head",
                  "max_input_length",
                  "meta",
                  "model_file_base_name",
                  "model_name_or_path",
                  "model_seqlen",
                  "module_name_preceding_first_block",
                  "modules_in_block_to_quantize",
                  "modules_to_fuse",
                  "modules_to_not_convert",
                  "pad_token_id",
                  "static_groups",
                  "sym",
                  "tokenizer",
                  "true_sequential",
                  "use_cuda_fp16",
                  "use_exllama"});
}

void read_width(ConfigReader& reader, std::initializer_list<int> known, StoredMethod& stored) {
  const auto bits = static_cast<int>(reader.integer("bits", 1, 32));
  if (std::ranges::find(known, bits) == known.end()) reader.refuse("bits", "not supported");
  stored.widths = {bits};
}

void read_gptq(ConfigReader& reader, StoredMethod& stored) {
  read_width(reader, {2, 3, 4, 8}, stored);
  read_group(reader, "group_size", stored);
  std::string form;
  read_choice(reader, reader.has("checkpoint_format") ? "checkpoint_format" : "format",
              {"gptq", "gptq_v2"}, form);
  stored.zeros_less_one = form == "gptq";
  ignore(reader, {"format"});
  reader.only("is_marlin_format", false);
  reader.only("pack_dtype", "int32");
  ignore_history(reader);
}

void read_awq(ConfigReader& reader, StoredMethod& stored) {
  read_width(reader, {4}, stored);
  read_group(reader, "group_size", stored);
  std::string form;
  for (const char* key : {"version", "format", "checkpoint_format"})
    read_choice(reader, key, {"gemm"}, form);
  reader.only("zero_point", true);
  reader.only("pack_dtype", "int32");
  ignore_history(reader);
}

void read_bnb(ConfigReader& reader, StoredMethod&) {
  ignore(reader,
         {"_load_in_4bit", "_load_in_8bit", "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage",
          "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "llm_int8_enable_fp32_cpu_offload",
          "llm_int8_has_fp16_weight", "llm_int8_skip_modules", "llm_int8_threshold", "load_in_4bit",
          "load_in_8bit", "target_parameters"});
}

struct Method {
  const char* name;
  Kind kind;
  void (*read)(ConfigReader& reader, StoredMethod& stored);
};
constexpr Method kMethods[] = {
    {"fp8", Kind::fp8, read_fp8},
    {"mxfp4", Kind::mxfp4, read_mxfp4},
    {"compressed-tensors", Kind::compressed, read_compressed},
    {"gptq", Kind::gptq, read_gptq},
    {"awq", Kind::awq, read_awq},
    {"bitsandbytes", Kind::bnb, read_bnb},
};

}  // namespace

StoredMethod read_stored_method(ConfigReader& reader) {
  constexpr const char* kKey = "quantization_config";
  StoredMethod stored;
  const Json* object = reader.value(kKey);
  if (object == nullptr) return stored;
  if (!object->is_object()) reader.refuse(kKey, "expected an object");
  ConfigReader own(*object, reader.where() + ": " + kKey);
  const std::string name = own.text("quant_method").value_or("");
  const auto* method = std::ranges::find(kMethods, name, &Method::name);
  if (method == std::end(kMethods))
    own.refuse("quant_method",
               "not supported, expected fp8, mxfp4, compressed-tensors, gptq, awq or bitsandbytes");
  stored.kind = method->kind;
  method->read(own, stored);
  own.finish();
  return stored;
}

}  // namespace walsh
