// Qwen 3: RMSNorm on every query and key head, head_dim apart from hidden size.
#include "model/family.h"

namespace walsh {
namespace {

// transformers' default, which is not hidden / heads.
constexpr int64_t kDefaultHeadDim = 128;

void read(ConfigReader& reader, ModelConfig& config) {
  config.qk_norm = true;
  config.qkv_bias = config.o_bias = reader.boolean_or("attention_bias", false);
  if (reader.value("head_dim") == nullptr) config.head_dim = kDefaultHeadDim;
  read_qwen_windows(reader, config);
}

}  // namespace

const Family kQwen3 = {"qwen3", "Qwen3ForCausalLM", read, &kLlamaNames};

}  // namespace walsh
