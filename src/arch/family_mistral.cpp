// Mistral is Llama with one sliding window for all layers. Ministral has it in the layers that
// `layer_types` lists; Ministral 3 scales queries beyond the training context.
#include "arch/family.h"

namespace walsh {
namespace {

// Gives all layers this window; 0, for null in the files of later Mistral models, means none.
void set_windows(int64_t window, DecoderTraits& traits) {
  for (LayerTraits& layer : traits.layers)
    layer.window = window;
}

void read_mistral(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  set_windows(read_window(reader, kDefaultWindow), traits);
}

void read_ministral(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  const int64_t window = read_window(reader, kDefaultWindow);
  if (!read_layer_types(reader, window, traits)) set_windows(window, traits);
}

void read_ministral3(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  // Without these keys transformers assumes a table for long contexts, which is too unusual for a
  // default.
  if (reader.value("rope_parameters") == nullptr && reader.value("rope_scaling") == nullptr)
    reader.refuse("rope_parameters", "expected parameters");
  set_windows(read_window(reader, 0), traits);
}

}  // namespace

const Family kMistral = {"mistral", "MistralForCausalLM", read_mistral};
const Family kMinistral = {"ministral", "MinistralForCausalLM", read_ministral};
const Family kMinistral3 = {
    "ministral3", "Ministral3ForCausalLM", read_ministral3, {.query_growth = true}};

}  // namespace walsh
