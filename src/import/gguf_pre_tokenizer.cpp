#include "import/gguf_pre_tokenizer.h"

#include <algorithm>

namespace walsh {
namespace {

// The patterns are those of the models' own tokenizer.json files.
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
// The patterns of DeepSeek's first tokenizers list these letters with case.
#define WALSH_CASED_LETTERS                                                                 \
  R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"   \
  R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386})"            \
  R"(\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F})"   \
  R"(\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA})"  \
  R"(\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"                 \
  R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"                 \
  R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4})"          \
  R"(\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3})"         \
  R"(\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})" \
  R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D})"  \
  R"(\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184})"  \
  R"(\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})" \
  R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E})"                 \
  R"(\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A})"                 \
  R"(\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB})"           \
  R"(\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"
#define WALSH_HAN_AND_HANGUL R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)"
constexpr std::string_view kDeepseekLlm[] = {
    R"([\r\n])",
    R"(\s?[)" WALSH_CASED_LETTERS R"(]+)",
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    WALSH_HAN_AND_HANGUL,
    R"(\p{N}+)"};
constexpr std::string_view kDeepseekCoder[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                               WALSH_HAN_AND_HANGUL, R"(\p{N})"};
#undef WALSH_HAN_AND_HANGUL
#undef WALSH_CASED_LETTERS
constexpr std::string_view kFalcon[] = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Words, "[0-9][0-9][0-9]"};
// llama.cpp uses these patterns for a file that names none.
constexpr std::string_view kDefault[] = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Words, R"(\p{N}+)",
                                         "[0-9][0-9][0-9]"};
#undef WALSH_LETTERS_OF_CASES

constexpr GgufPreTokenizer kDefaults = {kDefault}, kGpt2s = {kGpt2}, kDigitsApart = {kDigits};
constexpr GgufPreTokenizer kLlama3s = {kLlama3, true, true}, kGlm4 = {kLlama3, true, false};
constexpr GgufPreTokenizer kDbrx = {kLlama3}, kQwen2s = {kQwen2}, kQwen35s = {kQwen35};
constexpr GgufPreTokenizer kSeeds = {kSeed}, kGpt4os = {kGpt4o}, kTekkens = {kTekken, true, true};
constexpr GgufPreTokenizer kDeepseek3s = {kDeepseek3}, kFalcons = {kFalcon};
constexpr GgufPreTokenizer kDeepseekLlms = {kDeepseekLlm}, kDeepseekCoders = {kDeepseekCoder};

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
    {"minimax-m2", &kGpt4os},
    {"deepseek-llm", &kDeepseekLlms},
    {"deepseek-coder", &kDeepseekCoders},
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
