#include "text/jinja/parser.h"

#include "io/printable.h"
#include "walsh/error.h"

namespace walsh::jinja {

Token TokenStream::take() {
  Token token = tokens_[place_];
  if (place_ + 1 < tokens_.size()) ++place_;
  return token;
}

bool TokenStream::skip_sign(std::string_view sign) {
  if (!now().is(sign)) return false;
  take();
  return true;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!now().is_name(name)) return false;
  take();
  return true;
}

void TokenStream::expect_sign(std::string_view sign) {
  if (!skip_sign(sign))
    fail(std::string("expected '") + std::string(sign) + "', found " + describe());
}

void TokenStream::expect(Token::Kind kind, std::string_view description) {
  if (now().kind != kind)
    fail(std::string("expected ") + std::string(description) + ", found " + describe());
  take();
}

std::string TokenStream::expect_name() {
  if (now().kind != Token::Kind::name) fail(std::string("expected a name, found ") + describe());
  return take().text;
}

void TokenStream::fail(const std::string& reason, int line) const {
  throw Error(ErrorCode::bad_input, std::string(name_) + ", line " + std::to_string(line), reason);
}

std::string TokenStream::describe() const {
  switch (now().kind) {
    case Token::Kind::end:
      return "the end of the template";
    case Token::Kind::block_end:
      return "the end of the block";
    case Token::Kind::variable_end:
      return "the end of the expression";
    case Token::Kind::string:
      return "a string";
    case Token::Kind::data:
      return "text";
    default:
      return std::string("'") + printable(now().text, 48) + "'";
  }
}

namespace {

class StatementParser {
 public:
  explicit StatementParser(TokenStream& tokens) : tokens_(tokens), expressions_(tokens) {}

  Block parse_all() { return parse_block({}); }

 private:
  using Kind = Statement::Kind;
  using Names = std::initializer_list<std::string_view>;

  Statement make(Kind kind, int line) const {
    Statement statement;
    statement.kind = kind;
    statement.line = line;
    return statement;
  }

  bool at_end(Names ends) const {
    for (const std::string_view end : ends) {
      if (tokens_.now().is_name(end)) return true;
    }
    return false;
  }

  // Parses up to a block whose name is one of `ends`, which is then the current token. Without
  // `ends` it parses up to the end of the template.
  Block parse_block(Names ends) {
    Block block;
    for (;;) {
      const Token& now = tokens_.now();
      if (now.kind == Token::Kind::end) {
        if (ends.size() == 0) return block;
        tokens_.fail(std::string("the template ends where '") + std::string(*(ends.end() - 1)) +
                     "' is expected");
      }
      Token token = tokens_.take();
      if (token.kind == Token::Kind::data) {
        block.push_back(make(Kind::data, token.line));
        block.back().text = std::move(token.text);
      } else if (token.kind == Token::Kind::variable_begin) {
        block.push_back(make(Kind::output, token.line));
        block.back().value = expressions_.parse_tuple(true);
        tokens_.expect(Token::Kind::variable_end, "'}}'");
      } else {
        if (at_end(ends)) return block;
        block.push_back(parse_statement());
        tokens_.expect(Token::Kind::block_end, "'%}'");
      }
    }
  }

  // Parses the block after a tag, and its end tag up to the name.
  Block parse_body(Names ends) {
    tokens_.skip_sign(":");
    tokens_.expect(Token::Kind::block_end, "'%}'");
    if (++depth_ > kMaxBlockDepth) {
      tokens_.fail(std::string("blocks are nested deeper than ") + std::to_string(kMaxBlockDepth) +
                   " levels");
    }
    Block block = parse_block(ends);
    --depth_;
    return block;
  }

  Block parse_last_body(Names ends) {
    Block block = parse_body(ends);
    tokens_.take();
    return block;
  }

  Statement parse_statement() {
    const int line = tokens_.now().line;
    const std::string name = tokens_.expect_name();
    if (name == "if") return parse_if(line);
    if (name == "for") return parse_for(line);
    if (name == "set") return parse_set(line);
    if (name == "macro") return parse_macro(line);
    if (name == "call") return parse_call(line);
    if (name == "filter") return parse_filter(line);
    if (name == "with") return parse_with(line);
    if (name == "generation") {
      Statement statement = make(Kind::scope, line);
      const int loops = std::exchange(loops_, 0);
      statement.body = parse_last_body({"endgeneration"});
      loops_ = loops;
      return statement;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) tokens_.fail(std::string("'") + name + "' outside of a loop", line);
      return make(name == "break" ? Kind::stop : Kind::next, line);
    }
    tokens_.fail(std::string("the tag '") + printable(name, 48) + "' is unknown or not supported",
                 line);
  }

  Statement parse_if(int line) {
    Statement statement = make(Kind::branches, line);
    for (;;) {
      ExpressionPtr condition = expressions_.parse_tuple(false);
      Block body = parse_body({"elif", "else", "endif"});
      statement.branches.emplace_back(std::move(condition), std::move(body));
      const Token end = tokens_.take();
      if (end.is_name("elif")) continue;
      if (end.is_name("else")) statement.branches.emplace_back(nullptr, parse_last_body({"endif"}));
      return statement;
    }
  }

  Statement parse_for(int line) {
    Statement statement = make(Kind::loop, line);
    statement.target = expressions_.parse_target(false);
    if (!tokens_.skip_name("in"))
      tokens_.fail(std::string("expected 'in', found ") + tokens_.describe());
    statement.value = expressions_.parse_tuple(false, "recursive");
    if (tokens_.skip_name("if")) statement.condition = expressions_.parse_expression();
    statement.recursive = tokens_.skip_name("recursive");
    ++loops_;
    statement.body = parse_body({"else", "endfor"});
    --loops_;
    if (tokens_.take().text == "else") statement.otherwise = parse_last_body({"endfor"});
    return statement;
  }

  Statement parse_set(int line) {
    Statement statement = make(Kind::set, line);
    statement.target = expressions_.parse_target(true);
    if (tokens_.skip_sign("=")) {
      statement.value = expressions_.parse_tuple(true);
      return statement;
    }
    statement.kind = Kind::set_block;
    statement.value = expressions_.parse_filters(false);
    statement.body = parse_last_body({"endset"});
    return statement;
  }

  Statement parse_with(int line) {
    Statement statement = make(Kind::with, line);
    while (tokens_.now().kind != Token::Kind::block_end) {
      if (!statement.assignments.empty()) tokens_.expect_sign(",");
      ExpressionPtr target = expressions_.parse_target(false);
      tokens_.expect_sign("=");
      statement.assignments.emplace_back(std::move(target), expressions_.parse_expression());
    }
    statement.body = parse_last_body({"endwith"});
    return statement;
  }

  Statement parse_filter(int line) {
    Statement statement = make(Kind::filter, line);
    statement.value = expressions_.parse_filters(true);
    statement.body = parse_last_body({"endfilter"});
    return statement;
  }

  void parse_parameters(Macro& macro) {
    tokens_.expect_sign("(");
    while (!tokens_.now().is(")")) {
      if (!macro.parameters.empty()) tokens_.expect_sign(",");
      macro.parameters.push_back(tokens_.expect_name());
      if (tokens_.skip_sign("=")) {
        macro.defaults.push_back(expressions_.parse_expression());
      } else if (!macro.defaults.empty()) {
        tokens_.fail("a parameter without a default after one with a default");
      }
    }
    tokens_.expect_sign(")");
  }

  // Parses the body of a macro. It is a function of its own, so it cannot leave a loop around it.
  void parse_macro_body(Macro& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    const auto outside = std::exchange(expressions_.uses, {});
    macro.body = parse_last_body({end});
    const auto uses = expressions_.uses;
    macro.takes_caller = uses.caller;
    macro.takes_varargs = uses.varargs;
    macro.takes_kwargs = uses.kwargs;
    expressions_.uses = {uses.caller || outside.caller, uses.varargs || outside.varargs,
                         uses.kwargs || outside.kwargs};
    loops_ = loops;
  }

  Statement parse_macro(int line) {
    Statement statement = make(Kind::macro, line);
    statement.macro = std::make_unique<Macro>();
    statement.macro->name = tokens_.expect_name();
    parse_parameters(*statement.macro);
    parse_macro_body(*statement.macro, "endmacro");
    return statement;
  }

  Statement parse_call(int line) {
    Statement statement = make(Kind::call_block, line);
    statement.macro = std::make_unique<Macro>();
    statement.macro->name = "caller";
    if (tokens_.now().is("(")) parse_parameters(*statement.macro);
    statement.value = expressions_.parse_expression();
    if (statement.value->kind != Expression::Kind::call) tokens_.fail("expected a call", line);
    parse_macro_body(*statement.macro, "endcall");
    return statement;
  }

  TokenStream& tokens_;
  ExpressionParser expressions_;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Block parse(std::string_view source, std::string_view name) {
  TokenStream tokens(tokenize(source, name), name);
  return StatementParser(tokens).parse_all();
}

}  // namespace walsh::jinja
