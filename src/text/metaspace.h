// Reads the settings of SentencePiece's visible space, which the Metaspace pre-tokenizer and
// decoder share.
#pragma once

#include <string>
#include <string_view>

#include "io/json.h"

namespace walsh {

// Says when the mark is put in front of a text that does not begin with it.
enum class PrependScheme { always, first, never };

struct Metaspace {
  std::string replacement;  // it is one character in UTF-8
  PrependScheme scheme;
  bool split;
};

// Reads the settings, also in the older form with "add_prefix_space". Throws bad_input naming
// `where`.
Metaspace read_metaspace(const Json& step, std::string_view where);

}  // namespace walsh
