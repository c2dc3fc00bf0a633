#include "import/gguf_pre_tokenizer.h"

#include <algorithm>

namespace walsh {
namespace {

// The patterns of the models' own tokenizer.json files.
#define WALSH_LETTERS_OF_CASES \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt2[] = {kGpt2Words};
constexpr std::string_view kDigits[] = {R"(\p{N})", kGpt2Words};
constexpr std::string_view kLlama3[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kQwen2[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kQwen35[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kSeed[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1})"
    R"(| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kTekken[] = {
    WALSH_LETTERS_OF_CASES
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kGpt4o[] = {
    WALSH_LETTERS_OF_CASES
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kDeepseek3[] = {
    R"(\p{N}{1,3})",
    "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kFalcon[] = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Words, "[0-9][0-9][0-9]"};
// What llama.cpp does for a file that names nothing.
constexpr std::string_view kDefault[] = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Words, R"(\p{N}+)",
                                         "[0-9][0-9][0-9]"};
#undef WALSH_LETTERS_OF_CASES

constexpr GgufPreTokenizer kDefaults = {kDefault}, kGpt2s = {kGpt2}, kDigitsApart = {kDigits};
constexpr GgufPreTokenizer kLlama3s = {kLlama3, true, true}, kGlm4 = {kLlama3, true, false};
constexpr GgufPreTokenizer kDbrx = {kLlama3}, kQwen2s = {kQwen2}, kQwen35s = {kQwen35};
constexpr GgufPreTokenizer kSeeds = {kSeed}, kGpt4os = {kGpt4o}, kTekkens = {kTekken, true, true};
constexpr GgufPreTokenizer kDeepseek3s = {kDeepseek3}, kFalcons = {kFalcon};

struct Row {
  std::string_view name;
  const GgufPreTokenizer* value;
};

constexpr Row kTable[] = {
    {"default", &kDefaults},
    {"llama3", &kLlama3s},
    {"llama-v3", &kLlama3s},
    {"llama-bpe", &kLlama3s},
    {"falcon3", &kLlama3s},
    {"pixtral", &kLlama3s},
    {"lfm2", &kLlama3s},
    {"dbrx", &kDbrx},
    {"smaug-bpe", &kDbrx},
    {"chatglm-bpe", &kDbrx},
    {"glm4", &kGlm4},
    {"gpt-2", &kGpt2s},
    {"phi-2", &kGpt2s},
    {"gigachat", &kGpt2s},
    {"mellum", &kGpt2s},
    {"mpt", &kGpt2s},
    {"olmo", &kGpt2s},
    {"exaone4", &kGpt2s},
    {"trillion", &kGpt2s},
    {"granite-docling", &kGpt2s},
    {"starcoder", &kDigitsApart},
    {"refact", &kDigitsApart},
    {"command-r", &kDigitsApart},
    {"smollm", &kDigitsApart},
    {"codeshell", &kDigitsApart},
    {"exaone", &kDigitsApart},
    {"minerva-7b", &kDigitsApart},
    {"qwen2", &kQwen2s},
    {"deepseek-r1-qwen", &kQwen2s},
    {"stablelm2", &kQwen2s},
    {"hunyuan", &kQwen2s},
    {"megrez", &kQwen2s},
    {"grok-2", &kQwen2s},
    {"qwen35", &kQwen35s},
    {"seed-coder", &kSeeds},
    {"tekken", &kTekkens},
    {"gpt-4o", &kGpt4os},
    {"llama4", &kGpt4os},
    {"kanana2", &kGpt4os},
    {"deepseek-v3", &kDeepseek3s},
    {"hunyuan-dense", &kDeepseek3s},
    {"falcon", &kFalcons},
};

}  // namespace

const GgufPreTokenizer* gguf_pre_tokenizer(std::string_view name) {
  const auto place = std::find_if(std::begin(kTable), std::end(kTable),
                                  [&](const Row& row) { return row.name == name; });
  return place == std::end(kTable) ? nullptr : place->value;
}

}  // namespace walsh
