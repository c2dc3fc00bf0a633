#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/parser.h"

namespace walsh::jinja {
namespace {

bool one_of(std::string_view sign, std::initializer_list<std::string_view> signs) {
  return std::find(signs.begin(), signs.end(), sign) != signs.end();
}

}  // namespace

class ExpressionParser::Nested {
 public:
  explicit Nested(ExpressionParser& parser) : parser_(parser) {
    if (++parser.depth_ > kMaxExpressionDepth) {
      --parser.depth_;
      parser.tokens_.fail("expressions are nested deeper than " +
                          std::to_string(kMaxExpressionDepth) + " levels");
    }
  }
  ~Nested() { --parser_.depth_; }

 private:
  ExpressionParser& parser_;
};

ExpressionPtr ExpressionParser::make(Kind kind, int line, std::string text) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  node->text = std::move(text);
  return node;
}

ExpressionPtr ExpressionParser::finish(ExpressionPtr node) const {
  int below = 0;
  const auto see = [&](const ExpressionPtr& part) {
    if (part) below = std::max(below, part->height);
  };
  for (const ExpressionPtr& operand : node->operands)
    see(operand);
  for (const ExpressionPtr& argument : node->call.positional)
    see(argument);
  for (const auto& argument : node->call.named)
    see(argument.second);
  see(node->call.rest);
  see(node->call.named_rest);
  node->height = below + 1;
  if (node->height > kMaxExpressionHeight) {
    tokens_.fail(std::string("an expression has more than ") +
                     std::to_string(kMaxExpressionHeight) + " levels",
                 node->line);
  }
  return node;
}

ExpressionPtr ExpressionParser::pair(Kind kind, int line, ExpressionPtr a, ExpressionPtr b,
                                     std::string text) {
  ExpressionPtr node = make(kind, line, std::move(text));
  node->operands.push_back(std::move(a));
  node->operands.push_back(std::move(b));
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_choice, std::string_view end,
                                            bool in_brackets) {
  ExpressionPtr tuple = make(Kind::tuple, tokens_.now().line);
  for (bool comma = false;; comma = true) {
    const Token& now = tokens_.now();
    if (now.kind == Token::Kind::variable_end || now.kind == Token::Kind::block_end ||
        now.is(")") || (!end.empty() && now.is_name(end))) {
      if (tuple->operands.empty() && !in_brackets) {
        tokens_.fail(std::string("expected an expression, found ") + tokens_.describe());
      }
      break;
    }
    ExpressionPtr item = parse_expression(with_choice);
    if (!comma && !tokens_.now().is(",")) return item;
    tuple->operands.push_back(std::move(item));
    if (!tokens_.skip_sign(",")) break;
  }
  return finish(std::move(tuple));
}

ExpressionPtr ExpressionParser::parse_expression(bool with_choice) {
  return with_choice ? parse_choice() : parse_or();
}

ExpressionPtr ExpressionParser::parse_choice() {
  const Nested nested(*this);
  ExpressionPtr node = parse_or();
  while (tokens_.now().is_name("if")) {
    ExpressionPtr choice = make(Kind::choice, tokens_.take().line);
    choice->operands.push_back(parse_or());
    choice->operands.push_back(std::move(node));
    choice->operands.push_back(tokens_.skip_name("else") ? parse_choice() : nullptr);
    node = finish(std::move(choice));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr node = parse_and();
  while (tokens_.now().is_name("or")) {
    const int line = tokens_.take().line;
    node = pair(Kind::logic_or, line, std::move(node), parse_and());
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr node = parse_not();
  while (tokens_.now().is_name("and")) {
    const int line = tokens_.take().line;
    node = pair(Kind::logic_and, line, std::move(node), parse_not());
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!tokens_.now().is_name("not")) return parse_compare();
  const Nested nested(*this);
  ExpressionPtr node = make(Kind::logic_not, tokens_.take().line);
  node->operands.push_back(parse_not());
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_compare() {
  ExpressionPtr first = parse_sum();
  ExpressionPtr node;
  for (;;) {
    const Token& now = tokens_.now();
    std::string sign;
    if (now.kind == Token::Kind::sign && one_of(now.text, {"==", "!=", "<", "<=", ">", ">="})) {
      sign = now.text;
    } else if (now.is_name("in")) {
      sign = "in";
    } else if (now.is_name("not") && tokens_.ahead().is_name("in")) {
      sign = "not in";
      tokens_.take();
    } else {
      break;
    }
    if (!node) {
      node = make(Kind::compare, now.line);
      node->operands.push_back(std::move(first));
    }
    tokens_.take();
    node->signs.push_back(std::move(sign));
    node->operands.push_back(parse_sum());
  }
  return node ? finish(std::move(node)) : std::move(first);
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr node = parse_concat();
  while (tokens_.now().is("+") || tokens_.now().is("-")) {
    const Token sign = tokens_.take();
    node = pair(Kind::binary, sign.line, std::move(node), parse_concat(), sign.text);
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_concat() {
  ExpressionPtr node = parse_product();
  if (!tokens_.now().is("~")) return node;
  ExpressionPtr concat = make(Kind::concat, tokens_.now().line);
  concat->operands.push_back(std::move(node));
  while (tokens_.skip_sign("~"))
    concat->operands.push_back(parse_product());
  return finish(std::move(concat));
}

ExpressionPtr ExpressionParser::parse_product() {
  ExpressionPtr node = parse_power();
  while (tokens_.now().kind == Token::Kind::sign &&
         one_of(tokens_.now().text, {"*", "/", "//", "%"})) {
    const Token sign = tokens_.take();
    node = pair(Kind::binary, sign.line, std::move(node), parse_power(), sign.text);
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr node = parse_unary();
  while (tokens_.now().is("**")) {
    const int line = tokens_.take().line;
    node = pair(Kind::binary, line, std::move(node), parse_unary(), "**");
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const Nested nested(*this);
  ExpressionPtr node;
  if (tokens_.now().is("-") || tokens_.now().is("+")) {
    const Token sign = tokens_.take();
    node = make(sign.text == "-" ? Kind::negative : Kind::positive, sign.line);
    node->operands.push_back(parse_unary(false));
    node = finish(std::move(node));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  while (with_filters) {
    if (tokens_.now().is("|")) {
      tokens_.take();
      node = parse_filter(std::move(node));
    } else if (tokens_.now().is_name("is")) {
      node = parse_test(std::move(node));
    } else if (tokens_.now().is("(")) {
      node = parse_call(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& now = tokens_.now();
  switch (now.kind) {
    case Token::Kind::name:
      return parse_name();
    case Token::Kind::integer:
    case Token::Kind::real:
      return parse_number();
    case Token::Kind::string: {
      ExpressionPtr node = make(Kind::literal, now.line);
      std::string text;
      while (tokens_.now().kind == Token::Kind::string)
        text += tokens_.take().text;
      node->literal = std::move(text);
      return node;
    }
    default:
      break;
  }
  if (now.is("[")) return parse_list();
  if (now.is("{")) return parse_dict();
  if (!now.is("(")) tokens_.fail(std::string("unexpected ") + tokens_.describe());
  tokens_.take();
  ExpressionPtr node = parse_tuple(true, "", true);
  tokens_.expect_sign(")");
  return node;
}

ExpressionPtr ExpressionParser::parse_number() {
  const Token token = tokens_.take();
  ExpressionPtr node = make(Kind::literal, token.line);
  const std::string& digits = token.text;
  if (token.kind == Token::Kind::real) {
    double value = 0;
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (end.ec == std::errc::result_out_of_range) {
      const bool tiny = digits.find("e-") != digits.npos || digits.find("E-") != digits.npos;
      value = tiny ? 0.0 : HUGE_VAL;
    }
    node->literal = value;
    return node;
  }
  const char prefix = digits.size() > 1 ? static_cast<char>(digits[1] | 0x20) : '\0';
  const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
  Integer value = 0;
  for (size_t i = base == 10 ? 0 : 2; i < digits.size(); ++i) {
    const int digit = digits[i] <= '9' ? digits[i] - '0' : (digits[i] | 0x20) - 'a' + 10;
    if (__builtin_mul_overflow(value, base, &value) ||
        __builtin_add_overflow(value, digit, &value)) {
      tokens_.fail("an integer of more than 128 bits", token.line);
    }
  }
  node->literal = value;
  return node;
}

ExpressionPtr ExpressionParser::parse_name() {
  const Token token = tokens_.take();
  const std::string& name = token.text;
  if (one_of(name, {"true", "True", "false", "False", "none", "None"})) {
    ExpressionPtr node = make(Kind::literal, token.line);
    if (name != "none" && name != "None") node->literal = name == "true" || name == "True";
    return node;
  }
  uses.caller |= name == "caller";
  uses.varargs |= name == "varargs";
  uses.kwargs |= name == "kwargs";
  return make(Kind::name, token.line, name);
}

ExpressionPtr ExpressionParser::parse_list() {
  ExpressionPtr node = make(Kind::list, tokens_.take().line);
  while (!tokens_.now().is("]")) {
    node->operands.push_back(parse_expression());
    if (!tokens_.skip_sign(",")) break;
  }
  tokens_.expect_sign("]");
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_dict() {
  ExpressionPtr node = make(Kind::dict, tokens_.take().line);
  while (!tokens_.now().is("}")) {
    node->operands.push_back(parse_expression());
    tokens_.expect_sign(":");
    node->operands.push_back(parse_expression());
    if (!tokens_.skip_sign(",")) break;
  }
  tokens_.expect_sign("}");
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  for (;;) {
    if (tokens_.now().is("(")) {
      node = parse_call(std::move(node));
    } else if (tokens_.now().is(".")) {
      const int line = tokens_.take().line;
      if (tokens_.now().kind == Token::Kind::integer) {
        node = pair(Kind::item, line, std::move(node), parse_number());
        continue;
      }
      ExpressionPtr attribute = make(Kind::attribute, line, tokens_.expect_name());
      attribute->operands.push_back(std::move(node));
      node = finish(std::move(attribute));
    } else if (tokens_.now().is("[")) {
      node = parse_subscript(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr node) {
  const int line = tokens_.take().line;
  ExpressionPtr bounds[3];
  int colons = 0;
  for (;;) {
    if (tokens_.now().is(":") && colons < 2) {
      tokens_.take();
      ++colons;
    } else if (tokens_.now().is("]") || bounds[colons]) {
      break;
    } else {
      bounds[colons] = parse_expression();
    }
  }
  if (colons == 0 && bounds[0] && tokens_.now().is(",")) {
    ExpressionPtr tuple = make(Kind::tuple, line);
    tuple->operands.push_back(std::move(bounds[0]));
    while (tokens_.skip_sign(","))
      tuple->operands.push_back(parse_expression());
    bounds[0] = finish(std::move(tuple));
  }
  tokens_.expect_sign("]");
  if (colons == 0) {
    if (!bounds[0]) tokens_.fail("expected a subscript", line);
    return pair(Kind::item, line, std::move(node), std::move(bounds[0]));
  }
  ExpressionPtr slice = make(Kind::slice, line);
  slice->operands.push_back(std::move(node));
  for (ExpressionPtr& bound : bounds)
    slice->operands.push_back(std::move(bound));
  return finish(std::move(slice));
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr node) {
  const int line = tokens_.now().line;
  ExpressionPtr filter = make(Kind::filter, line, tokens_.expect_name());
  while (tokens_.skip_sign("."))
    filter->text.append(1, '.').append(tokens_.expect_name());
  filter->operands.push_back(std::move(node));
  if (tokens_.now().is("(")) filter->call = parse_arguments();
  return finish(std::move(filter));
}

ExpressionPtr ExpressionParser::parse_filters(bool inline_first) {
  ExpressionPtr node;
  if (inline_first) node = parse_filter(nullptr);
  while (tokens_.skip_sign("|"))
    node = parse_filter(std::move(node));
  return node;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr node) {
  const int line = tokens_.take().line;
  const bool negated = tokens_.skip_name("not");
  ExpressionPtr test = make(Kind::test, line, tokens_.expect_name());
  while (tokens_.skip_sign("."))
    test->text.append(1, '.').append(tokens_.expect_name());
  test->operands.push_back(std::move(node));
  const Token& now = tokens_.now();
  const bool operand = now.kind == Token::Kind::string || now.kind == Token::Kind::integer ||
                       now.kind == Token::Kind::real || now.is("[") || now.is("{") ||
                       (now.kind == Token::Kind::name && !one_of(now.text, {"else", "or", "and"}));
  if (now.is("(")) {
    test->call = parse_arguments();
  } else if (operand) {
    if (now.is_name("is")) tokens_.fail("tests cannot be chained");
    test->call.positional.push_back(parse_postfix(parse_primary()));
  }
  test = finish(std::move(test));
  if (!negated) return test;
  ExpressionPtr negation = make(Kind::logic_not, line);
  negation->operands.push_back(std::move(test));
  return finish(std::move(negation));
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr node) {
  ExpressionPtr call = make(Kind::call, tokens_.now().line);
  call->operands.push_back(std::move(node));
  call->call = parse_arguments();
  return finish(std::move(call));
}

Call ExpressionParser::parse_arguments() {
  Call call;
  const int line = tokens_.now().line;
  const auto ensure = [&](bool right) {
    if (!right) tokens_.fail("arguments of a call in a wrong order", line);
  };
  tokens_.expect_sign("(");
  while (!tokens_.now().is(")")) {
    if (tokens_.skip_sign("*")) {
      ensure(!call.rest && !call.named_rest);
      call.rest = parse_expression();
    } else if (tokens_.skip_sign("**")) {
      ensure(!call.named_rest);
      call.named_rest = parse_expression();
    } else if (tokens_.now().kind == Token::Kind::name && tokens_.ahead().is("=")) {
      ensure(!call.named_rest);
      std::string name = tokens_.take().text;
      tokens_.take();
      call.named.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!call.rest && !call.named_rest && call.named.empty());
      call.positional.push_back(parse_expression());
    }
    if (!tokens_.skip_sign(",")) break;
  }
  tokens_.expect_sign(")");
  return call;
}

ExpressionPtr ExpressionParser::parse_one_target(bool with_member) {
  const Nested nested(*this);
  const int line = tokens_.now().line;
  if (tokens_.skip_sign("(")) {
    ExpressionPtr node = parse_target(with_member);
    tokens_.expect_sign(")");
    return node;
  }
  ExpressionPtr node = make(Kind::name, line, tokens_.expect_name());
  if (one_of(node->text, {"true", "True", "false", "False", "none", "None", "loop"})) {
    tokens_.fail(std::string("cannot assign to '") + node->text + "'", line);
  }
  if (with_member && tokens_.skip_sign(".")) {
    ExpressionPtr member = make(Kind::member, line, node->text);
    node->text = tokens_.expect_name();
    member->operands.push_back(std::move(node));
    node = finish(std::move(member));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_target(bool with_member) {
  ExpressionPtr first = parse_one_target(with_member);
  if (!tokens_.now().is(",")) return first;
  ExpressionPtr tuple = make(Kind::tuple, first->line);
  tuple->operands.push_back(std::move(first));
  while (tokens_.skip_sign(",")) {
    if (tokens_.now().kind != Token::Kind::name && !tokens_.now().is("(")) break;
    if (tokens_.now().is_name("in")) break;
    tuple->operands.push_back(parse_one_target(with_member));
  }
  return finish(std::move(tuple));
}

}  // namespace walsh::jinja
