// Declares the tree of a template, which is made once and never changed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/value.h"

namespace walsh::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Call {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr rest, named_rest;  // they are written *rest and **named_rest
};

struct Expression {
  // A comment names the members in which a kind keeps its parts, as the template writes them.
  enum class Kind : uint8_t {
    literal,    // literal
    name,       // text
    list,       // operands
    tuple,      // operands
    dict,       // operands: key, value, key, value, ...
    attribute,  // operands[0].text
    item,       // operands[0][operands[1]]
    slice,      // operands[0][operands[1]:operands[2]:operands[3]]; absent ones are nullptr
    call,       // operands[0](call)
    filter,     // operands[0] | text(call); nullptr for the content of a filter block
    test,       // operands[0] is text(call)
    choice,     // operands[1] if operands[0] else operands[2], which may be nullptr
    logic_or,   // two operands
    logic_and,
    logic_not,
    negative,
    positive,
    concat,   // any number of operands
    compare,  // operands[0] signs[0] operands[1] signs[1] operands[2] ...
    binary,   // operands[0] text operands[1]
    member,   // only as a target of set: text.attribute of a namespace, attribute is operands[0]
  };

  Kind kind;
  int line = 0;
  int height = 1;  // the tree below has this many levels, this one included
  std::string text;
  std::variant<None, bool, Integer, double, std::string> literal;
  std::vector<ExpressionPtr> operands;
  std::vector<std::string> signs;
  Call call;
};

struct Statement;
using Block = std::vector<Statement>;

// Describes a macro, or the body of a {% call %} block.
struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // the last parameters have these
  std::vector<Statement> body;
  // Says whether the body mentions `caller`, `varargs` or `kwargs`, which allows them in calls.
  bool takes_caller = false, takes_varargs = false, takes_kwargs = false;
};

struct Statement {
  // A comment names the members in which a kind keeps its parts.
  enum class Kind : uint8_t {
    data,        // text
    output,      // value
    branches,    // branches; the first whose condition holds is taken, else has none
    loop,        // target, value, condition or nullptr, body, otherwise, recursive
    set,         // target, value
    set_block,   // target, value: filters over a nullptr, or nullptr; body
    with,        // assignments; body
    macro,       // macro
    call_block,  // value: the call; macro: the caller
    filter,      // value: filters over a nullptr; body
    scope,       // body (generation)
    stop,        // break
    next,        // continue
  };

  Kind kind;
  int line = 0;
  bool recursive = false;
  std::string text;
  ExpressionPtr target, value, condition;
  Block body, otherwise;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> assignments;
  std::unique_ptr<Macro> macro;
};

}  // namespace walsh::jinja
