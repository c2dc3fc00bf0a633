// Some models have several parts (text, vision, ...), of which walsh reads the text part.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "io/checkpoint.h"
#include "io/json.h"

namespace walsh {

struct Composite {
  std::string_view model_type, architecture;  // as in Family
  std::string_view text_type;                 // model_type of text parts that do not state it
};

// Returns the kind of multi-part model that config.json describes; null if it is none.
const Composite* find_composite(const Json& object);
// Returns the config of the text part, merged with what the whole states for all parts. Throws
// bad_input for an unknown key.
Json text_config(const Json& object, const Composite& composite, const std::string& where);
// Renames the text part's tensors in a checkpoint of the whole model.
std::span<const NameRule> text_names();
std::string supported_composites();  // architectures, for messages

}  // namespace walsh
