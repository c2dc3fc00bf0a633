// Parses tokens into the tree. Expressions and statements are two files of one grammar.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace walsh::jinja {

constexpr int kMaxBlockDepth = 64;       // blocks nest inside of blocks at most this deep
constexpr int kMaxExpressionDepth = 64;  // brackets and the like nest at most this deep
// A tree has at most this many levels; `a + b + c ...` has one level per operator.
constexpr int kMaxExpressionHeight = 400;

// Parses a template. Throws bad_input naming `name` and the line.
Block parse(std::string_view source, std::string_view name);

class TokenStream {
 public:
  TokenStream(std::vector<Token> tokens, std::string_view name)
      : tokens_(std::move(tokens)), name_(name) {}

  const Token& now() const { return tokens_[place_]; }
  const Token& ahead() const { return tokens_[std::min(place_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_sign(std::string_view sign);
  void expect(Token::Kind kind, std::string_view description);
  std::string expect_name();
  [[noreturn]] void fail(const std::string& reason) const { fail(reason, now().line); }
  [[noreturn]] void fail(const std::string& reason, int line) const;
  std::string describe() const;  // this describes the current token for messages

 private:
  std::vector<Token> tokens_;
  std::string_view name_;
  size_t place_ = 0;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  // Parses an expression, or a tuple of several that are separated by commas. It ends before a name
  // `end`.
  ExpressionPtr parse_tuple(bool with_choice, std::string_view end = "", bool in_brackets = false);
  ExpressionPtr parse_expression(bool with_choice = true);
  // Parses the target of set and for, which is a name, `space.name` where that is allowed, or a
  // tuple of them.
  ExpressionPtr parse_target(bool with_member);
  // Parses `| name | name ...` as applied to nullptr. If `inline_first`, the first filter has no
  // bar.
  ExpressionPtr parse_filters(bool inline_first);

  // Notes the names read so far that make a macro accept caller, varargs or kwargs.
  struct Uses {
    bool caller = false, varargs = false, kwargs = false;
  };
  Uses uses;

 private:
  using Kind = Expression::Kind;
  class Nested;

  ExpressionPtr make(Kind kind, int line, std::string text = "");
  ExpressionPtr finish(ExpressionPtr node) const;  // it sets the height
  ExpressionPtr pair(Kind kind, int line, ExpressionPtr a, ExpressionPtr b, std::string text = "");
  ExpressionPtr parse_choice();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_number();
  ExpressionPtr parse_name();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_filter(ExpressionPtr node);
  ExpressionPtr parse_test(ExpressionPtr node);
  ExpressionPtr parse_call(ExpressionPtr node);
  Call parse_arguments();
  ExpressionPtr parse_one_target(bool with_member);

  TokenStream& tokens_;
  int depth_ = 0;
};

}  // namespace walsh::jinja
