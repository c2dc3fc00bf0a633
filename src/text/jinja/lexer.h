// Cuts a template's text into tokens, with the rules of Jinja2 for white space around blocks as
// transformers sets them (trim_blocks and lstrip_blocks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace walsh::jinja {

struct Token {
  enum class Kind : uint8_t {
    data,            // it is text between blocks
    variable_begin,  // it is {{
    variable_end,
    block_begin,  // it is {%
    block_end,
    name,
    string,   // it has its value
    integer,  // it has its digits, with the prefix of the base, without underscores
    real,
    sign,  // it is an operator or a bracket
    end,
  };
  Kind kind;
  int line;
  std::string text;

  bool is(std::string_view sign) const { return kind == Kind::sign && text == sign; }
  bool is_name(std::string_view name) const { return kind == Kind::name && text == name; }
};

// Returns the tokens of a text; the last one is `end`. `source` is valid UTF-8. Throws bad_input
// naming `name` and the line.
std::vector<Token> tokenize(std::string_view source, std::string_view name);

}  // namespace walsh::jinja
