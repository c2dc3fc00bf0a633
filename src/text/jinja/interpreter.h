// Evaluates the tree of a template.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/loop.h"
#include "text/jinja/operations.h"
#include "text/jinja/runtime.h"

namespace walsh::jinja {

// A scope holds the variables of a block; lookups go from the innermost scope outwards.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> names{};
  bool captured = false;  // a macro may read it later
};

class Interpreter {
 public:
  Interpreter(Runtime& runtime, std::vector<std::pair<std::string_view, Value>> variables);

  std::string run(const Block& block);

 private:
  enum class Flow : uint8_t { normal, stop, next };

  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  Flow execute_scoped(const Block& block);
  Flow execute_branches(const Statement& statement);
  Flow execute_loop(const Statement& statement, const Value& items, int depth);
  Flow execute_set_block(const Statement& statement);
  Flow execute_with(const Statement& statement);
  void execute_call_block(const Statement& statement);
  void define_macro(const Statement& statement);
  void assign(const Expression& target, const Value& value);
  void assign_member(const Expression& target, const Value& value);
  Scope* enter(Scope* parent);
  void store(std::string_view name, const Value& value);
  const Value* find(std::string_view name);

  Value evaluate(const Expression& expression);
  Value evaluate_literal(const Expression& expression);
  Value evaluate_name(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_slice(const Expression& expression);
  Value evaluate_choice(const Expression& expression);
  Value evaluate_concat(const Expression& expression);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_binary(const Expression& expression);
  Value evaluate_filter(const Expression& expression);
  Value evaluate_test(const Expression& expression);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& expressions);
  Arguments evaluate_arguments(const Call& call);
  Value call(const Value& callee, const Arguments& arguments);
  Value call_macro(const Callable& macro, const Arguments& arguments);
  void bind_macro(const Macro& macro, const Arguments& arguments);
  Value call_loop(const Loop& loop, const Arguments& arguments);

  Runtime& runtime_;
  std::deque<Scope> scopes_;
  std::deque<Loop> loops_;
  Scope* scope_;
  Builder* out_ = nullptr;
  const Value* block_text_ = nullptr;  // the filters of a block are applied to this text
  int macro_depth_ = 0;
};

}  // namespace walsh::jinja
