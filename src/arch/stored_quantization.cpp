#include "arch/stored_quantization.h"

#include <algorithm>
#include <string_view>

#include "arch/block_shape.h"
#include "arch/config_reader.h"

namespace walsh {
namespace {

// These kinds say nothing about the model. weights/stored/method.cpp reads how they store matrices.
constexpr std::string_view kReadWithTheWeights[] = {"compressed-tensors", "gptq", "awq",
                                                    "bitsandbytes"};

}  // namespace

StoredQuantization read_stored_quantization(ConfigReader& reader) {
  const char* key = "quantization_config";
  StoredQuantization stored;
  const Json* object = reader.value(key);
  if (object == nullptr) return stored;
  if (!object->is_object()) reader.refuse(key, "expected an object");
  ConfigReader own(*object, reader.where() + ": " + key);
  const std::string method = own.text("quant_method").value_or("");
  if (method == "fp8") {
    stored.kind = StoredQuantization::Kind::fp8;
    own.only("fmt", "e4m3");
    const BlockShape block = read_block_shape(own, "weight_block_size");
    stored.block_rows = block.rows;
    stored.block_cols = block.cols;
  } else if (method == "mxfp4") {
    stored.kind = StoredQuantization::Kind::mxfp4;
  } else if (std::ranges::find(kReadWithTheWeights, method) != std::end(kReadWithTheWeights)) {
    return stored;
  } else {
    own.refuse("quant_method",
               "not supported, expected fp8, mxfp4, compressed-tensors, gptq, awq or bitsandbytes");
  }
  // These keys are ignored: how other programs round activations (walsh does not), which tensors
  // are not quantized (their types show it), and how transformers loads them.
  for (const char* inert :
       {"activation_scheme", "modules_to_not_convert", "ignored_layers", "scale_fmt", "dequantize"})
    own.value(inert);
  own.finish();
  return stored;
}

}  // namespace walsh
