// Takes arbitrary bytes as generation_config.json, or in place of config.json. Every refusal must
// be bad_input, and an accepted file must give valid sampler options and ids of the vocabulary.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "generate/generation_config.h"
#include "generate/sampler.h"
#include "walsh/error.h"

namespace {

constexpr int64_t kVocab = 1000;

template <typename Read>
void expect_bad_input(Read&& read) {
  try {
    read();
  } catch (const walsh::Error& e) {
    if (e.code() != walsh::ErrorCode::bad_input) std::abort();
  }
}

void read(const walsh::GenerationConfig& config) {
  for (const bool given : {false, true}) {
    expect_bad_input([&] {
      walsh::GenerationOptions wanted;
      if (given) wanted.temperature = wanted.top_p = 0.5f;
      config.sampler(wanted);
    });
  }
  expect_bad_input([&] {
    for (const int32_t id : config.stop_ids())
      if (id < 0 || id >= kVocab) std::abort();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  walsh::ModelConfig config;
  config.vocab = kVocab;
  read(walsh::GenerationConfig(config, text, "{}", "m"));
  read(walsh::GenerationConfig(config, "", text, "m"));
  return 0;
}
