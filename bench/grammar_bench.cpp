// Measures the time per token for enforcing a schema, with random allowed tokens over a vocabulary
// of 128,000 tokens, or that of a tokenizer.json.
//
// bench_grammar [TOKENIZER.json]
//
// For every schema it prints the mean, the median and the largest processor time of a token
// (computing its mask, masking the logits, accepting it) while the grammar is new, and the mean for
// later texts.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/random.h"
#include "grammar/json_schema.h"
#include "grammar/token_grammar.h"

namespace walsh {
namespace {

using grammar::TokenGrammar;

// Returns the processor time of this thread in microseconds, which other programs do not affect.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

// Makes tokens of bytes, numbers, JSON punctuation, and words with and without a leading space.
std::shared_ptr<const grammar::TokenVocabulary> made_vocabulary(size_t size) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte)
    texts.emplace_back(1, static_cast<char>(byte));
  for (int number = 0; number < 1000; ++number)
    texts.push_back(std::to_string(number));
  Random random(1);
  const char* ends[] = {"\": \"", "\", \"", "\"},", "\":", "{\"", "[\"", "\"]", "}\n", "\\n", "  "};
  while (texts.size() < size) {
    std::string text = random.below(2) == 0 ? " " : "";
    for (uint64_t i = 1 + random.below(9); i > 0; --i)
      text += static_cast<char>('a' + random.below(26));
    if (random.below(12) == 0) text += "\xC3\xA9";
    if (random.below(20) == 0) text += ends[random.below(std::size(ends))];
    texts.push_back(std::move(text));
  }
  return std::make_shared<grammar::TokenVocabulary>(std::move(texts));
}

std::shared_ptr<const grammar::TokenVocabulary> file_vocabulary(const char* path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const Tokenizer tokenizer = Tokenizer::from_json(text.str(), "", path);
  return std::make_shared<grammar::TokenVocabulary>(tokenizer, tokenizer.vocab_size());
}

// Returns the microseconds for each token of a text.
std::vector<double> times_of(const std::shared_ptr<const TokenGrammar>& compiled, uint64_t seed) {
  grammar::TokenMatcher matcher(compiled);
  Random random(seed);
  std::vector<double> times;
  std::vector<float> logits(compiled->vocabulary().size());
  for (int i = 0; i < 400 && matcher.can_continue(); ++i) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    const double start = now();
    mask_logits(matcher, {}, logits);
    const double masked = now();
    const size_t first = random.below(logits.size());
    size_t token = first;
    while (!std::isfinite(logits[token]) && (token = (token + 1) % logits.size()) != first) {
    }
    const double chosen = now();
    if (!matcher.accept(static_cast<int32_t>(token))) break;
    times.push_back((masked - start) + (now() - chosen));
  }
  return times;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values)
    sum += value;
  return sum / static_cast<double>(std::max<size_t>(1, values.size()));
}

void measure(const char* name, const char* schema,
             const std::shared_ptr<const grammar::TokenVocabulary>& vocabulary) {
  grammar::GraphBuilder builder("schema");
  const auto root = add_json_schema(builder, parse_ordered_json(schema, "schema"));
  const auto compiled = std::make_shared<TokenGrammar>(builder.finish(root), vocabulary, "schema");
  std::vector<double> fresh = times_of(compiled, 1), later;
  for (uint64_t seed = 2; seed < 12; ++seed)
    for (const double time : times_of(compiled, seed))
      later.push_back(time);
  const double average = mean(fresh);
  std::sort(fresh.begin(), fresh.end());
  fmt::print("{:24} tokens {:4}  mean {:7.1f} us  median {:7.1f}  largest {:8.1f}  later {:7.1f}\n",
             name, fresh.size(), average, fresh[fresh.size() / 2], fresh.back(), mean(later));
}

}  // namespace
}  // namespace walsh

int main(int argc, char** argv) {
  using namespace walsh;
  const double start = now();
  const auto vocabulary = argc > 1 ? file_vocabulary(argv[1]) : made_vocabulary(128'000);
  fmt::print("{} tokens, read in {:.0f} ms\n", vocabulary->size(), 1e-3 * (now() - start));
  measure("any JSON", "{}", vocabulary);
  measure("person", R"({"type": "object", "properties": {
      "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
      "tags": {"type": "array", "items": {"type": "string"}}, "born": {"format": "date"}},
      "required": ["name", "age", "tags"], "additionalProperties": false})",
          vocabulary);
  measure("strings of 200", R"({"type": "array", "minItems": 3, "items":
      {"type": "string", "minLength": 20, "maxLength": 200}})",
          vocabulary);
  measure("pattern", R"({"type": "array", "minItems": 20, "items":
      {"type": "string", "pattern": "^[A-Z][a-z]+( [A-Z][a-z]+)*$"}})",
          vocabulary);
  measure("tree", R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties":
      {"value": {"type": "number"}, "next": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
      "required": ["value", "next"]}}})",
          vocabulary);
  return 0;
}
