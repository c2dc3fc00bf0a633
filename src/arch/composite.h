// Reads configs of models with several parts (text, vision, ...). The decoder is made of the text
// part.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "io/checkpoint.h"
#include "io/json.h"

namespace walsh {

struct Composite {
  std::string_view model_type, architecture;  // They have the meaning that they have in Family.
  std::string_view text_type;                 // A text part that states no model_type has this one.
};

// Returns the kind of multi-part model that config.json describes; null if it describes a model of
// one part.
const Composite* find_composite(const Json& object);
// Returns the config of the text part, with the keys that the whole model states for all parts.
// Throws bad_input for an unknown key.
Json text_config(const Json& object, const Composite& composite, const std::string& where);
// Returns the rules that turn names of the text part's tensors into those of the checkpoint.
std::span<const NameRule> text_names();
std::string supported_composites();  // Returns the architectures, for messages.

}  // namespace walsh
