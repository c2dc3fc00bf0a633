// Adds special tokens such as BOS around an encoded text, by tokenizer.json's "post_processor".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "text/vocabulary.h"

namespace walsh {

class PostProcessor {
 public:
  // Supports TemplateProcessing (its "single" template), ByteLevel (which changes no ids) and
  // sequences of them; null adds nothing. Throws bad_input for anything else, naming it.
  PostProcessor(const Json& value, const Vocabulary& vocabulary, std::string_view where);
  // Puts one token before and one after the text, each of which is optional.
  PostProcessor(std::optional<int32_t> before, std::optional<int32_t> behind);

  // Returns the ids with the template's tokens (if `add_special`) around them.
  std::vector<int32_t> apply(std::vector<int32_t> ids, bool add_special) const;

  // Returns the first token that is put before a text.
  std::optional<int32_t> leading() const;

 private:
  struct Piece {
    bool is_text;
    std::vector<int32_t> ids;  // a special token has these
  };

  void read_template(const Json& step, const Vocabulary& vocabulary, std::string_view where);

  std::vector<Piece> pieces_;
};

}  // namespace walsh
