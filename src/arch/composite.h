// Models of several parts (text, vision, ...) of which walsh reads the text part.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "io/checkpoint.h"
#include "io/json.h"

namespace walsh {

struct Composite {
  std::string_view model_type, architecture;  // as Family
  std::string_view text_type;                 // model_type of the text part that does not say it
};

// The kind of model that config.json describes, if it is one of several parts; or null.
const Composite* find_composite(const Json& object);
// The config of its text part, with what the whole says for all parts. Throws bad_input for a key
// that is not understood.
Json text_config(const Json& object, const Composite& composite, const std::string& where);
// How the tensors of the text part are called within a checkpoint of the whole.
std::span<const NameRule> text_names();
std::string supported_composites();  // architectures, for messages

}  // namespace walsh
