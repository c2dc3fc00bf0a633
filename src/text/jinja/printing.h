// Converts values to text, as str(), repr() and json.dumps() do.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace walsh::jinja {

std::string format_integer(Integer value);
std::string format_digits(Unsigned value);  // they are decimal
// Returns the shortest decimal that reads back as the same number, in Python's spelling.
std::string format_real(double value);

// Writes str(value). Fails for functions and iterators, for which Python prints an address.
void append_str(Runtime& runtime, const Value& value, Builder& out);
// Returns str(value) as a Text. A text stays as it is.
Text to_text(Runtime& runtime, const Value& value);

void append_repr(Runtime& runtime, const Value& value, Builder& out);
std::string repr(Runtime& runtime, const Value& value);

// Writes &, <, >, ' and " as character references.
void append_escaped(std::string_view text, Builder& out);

struct JsonStyle {
  bool ascii = false;
  bool sorted = false;
  // Each member has a line, which is indented by `indent` per level.
  bool lines = false;
  std::string_view indent, between = ", ", behind_key = ": ";
};
// Writes json.dumps(value). Fails for values that JSON cannot represent.
void append_json(Runtime& runtime, const Value& value, const JsonStyle& style, Builder& out);

}  // namespace walsh::jinja
