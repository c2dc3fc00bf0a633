#include "grammar/grammar_cache.h"

#include <algorithm>

#include "grammar/gbnf.h"
#include "grammar/json_schema.h"

namespace walsh::grammar {
namespace {

constexpr size_t kKept = 16;  // this many grammars are kept, each of which may take some 32 MiB

}  // namespace

std::shared_ptr<const TokenVocabulary> GrammarCache::vocabulary(const Tokenizer& tokenizer,
                                                                int64_t logits) {
  std::promise<std::shared_ptr<const TokenVocabulary>> made;
  std::shared_future<std::shared_ptr<const TokenVocabulary>> result;
  bool is_mine = false;
  {
    const std::lock_guard lock(mutex_);
    is_mine = !vocabulary_.valid();
    if (is_mine) vocabulary_ = made.get_future().share();
    result = vocabulary_;
  }
  if (!is_mine) return result.get();
  try {
    made.set_value(std::make_shared<TokenVocabulary>(tokenizer, logits));
  } catch (...) {
    made.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);
    vocabulary_ = {};  // the next call tries again, in case memory is available then
  }
  return result.get();
}

std::shared_ptr<const TokenGrammar> GrammarCache::get(const Tokenizer& tokenizer, int64_t logits,
                                                      const std::string& key,
                                                      const std::string& where,
                                                      const std::function<Graph()>& make) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.key == key; });
    if (known != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, known);
      return known->grammar;
    }
  }
  auto grammar = std::make_shared<const TokenGrammar>(make(), vocabulary(tokenizer, logits), where);
  const std::lock_guard lock(mutex_);
  entries_.push_front({key, grammar});
  if (entries_.size() > kKept) entries_.pop_back();
  return grammar;
}

std::shared_ptr<const TokenGrammar> gbnf_grammar(GrammarCache& cache, const Tokenizer& tokenizer,
                                                 int64_t logits, const std::string& text,
                                                 const std::string& where) {
  return cache.get(tokenizer, logits, "gbnf " + text, where, [&] {
    GraphBuilder builder(where);
    const RuleId root = add_gbnf(builder, text);
    return builder.finish(root);
  });
}

std::shared_ptr<const TokenGrammar> schema_grammar(GrammarCache& cache, const Tokenizer& tokenizer,
                                                   int64_t logits, const OrderedJson& schema,
                                                   const std::string& where) {
  return cache.get(tokenizer, logits, "schema " + schema.dump(), where, [&] {
    GraphBuilder builder(where);
    const RuleId root = add_json_schema(builder, schema);
    return builder.finish(root);
  });
}

}  // namespace walsh::grammar
