// Keeps the most recently used grammars for one model's vocabulary.
#pragma once

#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "grammar/token_grammar.h"
#include "io/json.h"
#include "text/tokenizer.h"

namespace walsh::grammar {

// A cache is thread-safe.
class GrammarCache {
 public:
  // `key` identifies the grammar; `make` is called if it is not cached, and its exceptions are
  // passed on. `where` is its name in messages. All calls must use the same tokenizer and number of
  // logits.
  std::shared_ptr<const TokenGrammar> get(const Tokenizer& tokenizer, int64_t logits,
                                          const std::string& key, const std::string& where,
                                          const std::function<Graph()>& make);

  // Returns the vocabulary, which the first call builds. That takes a while, so only those who need
  // it wait.
  std::shared_ptr<const TokenVocabulary> vocabulary(const Tokenizer& tokenizer, int64_t logits);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const TokenGrammar> grammar;
  };

  std::mutex mutex_;
  std::shared_future<std::shared_ptr<const TokenVocabulary>> vocabulary_;
  std::list<Entry> entries_;  // the most recently used one comes first
};

// These return the grammar of a GBNF text and that of a JSON schema. They throw as add_gbnf,
// add_json_schema and GraphBuilder::finish do.
std::shared_ptr<const TokenGrammar> gbnf_grammar(GrammarCache& cache, const Tokenizer& tokenizer,
                                                 int64_t logits, const std::string& text,
                                                 const std::string& where);
std::shared_ptr<const TokenGrammar> schema_grammar(GrammarCache& cache, const Tokenizer& tokenizer,
                                                   int64_t logits, const OrderedJson& schema,
                                                   const std::string& where);

}  // namespace walsh::grammar
