// The grammars of one model's vocabulary that were asked for lately.
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

// From any thread.
class GrammarCache {
 public:
  // `key` tells the grammar from all others; `make` is called if it is not there, and what it
  // throws is thrown. `where` is for messages. All calls have the same tokenizer and the same
  // number of logits.
  std::shared_ptr<const TokenGrammar> get(const Tokenizer& tokenizer, int64_t logits,
                                          const std::string& key, const std::string& where,
                                          const std::function<Graph()>& make);

  // Made when it is first asked for, which takes a while: those who need it wait, nobody else.
  std::shared_ptr<const TokenVocabulary> vocabulary(const Tokenizer& tokenizer, int64_t logits);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const TokenGrammar> grammar;
  };

  std::mutex mutex_;
  std::shared_future<std::shared_ptr<const TokenVocabulary>> vocabulary_;
  std::list<Entry> entries_;  // the latest first
};

// The grammar of a text in GBNF, and that of a JSON schema. Throws as add_gbnf, add_json_schema and
// GraphBuilder::finish.
std::shared_ptr<const TokenGrammar> gbnf_grammar(GrammarCache& cache, const Tokenizer& tokenizer,
                                                 int64_t logits, const std::string& text,
                                                 const std::string& where);
std::shared_ptr<const TokenGrammar> schema_grammar(GrammarCache& cache, const Tokenizer& tokenizer,
                                                   int64_t logits, const OrderedJson& schema,
                                                   const std::string& where);

}  // namespace walsh::grammar
