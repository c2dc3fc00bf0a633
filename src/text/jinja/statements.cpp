#include "text/jinja/functions.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/printing.h"

namespace walsh::jinja {

Interpreter::Interpreter(Runtime& runtime,
                         std::vector<std::pair<std::string_view, Value>> variables)
    : runtime_(runtime) {
  // The template's variables hide the caller's without changing them.
  Scope* const given = enter(nullptr);
  given->names = std::move(variables);
  scope_ = enter(given);
}

std::string Interpreter::run(const Block& block) {
  Builder out(runtime_);
  out_ = &out;
  execute(block);
  return out.take();
}

Scope* Interpreter::enter(Scope* parent) {
  runtime_.charge(sizeof(Scope));
  scopes_.push_back({parent});
  return &scopes_.back();
}

void Interpreter::store(std::string_view name, const Value& value) {
  for (auto& [known, place] : scope_->names) {
    if (known == name) {
      place = value;
      return;
    }
  }
  runtime_.charge(sizeof(scope_->names[0]));
  scope_->names.emplace_back(name, value);
}

const Value* Interpreter::find(std::string_view name) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    runtime_.step(scope->names.size() / 16);
    for (const auto& [known, value] : scope->names) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

Interpreter::Flow Interpreter::execute(const Block& block) {
  for (const Statement& statement : block) {
    const Flow flow = execute(statement);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_scoped(const Block& block) {
  Scope* const outer = scope_;
  scope_ = enter(outer);
  const Flow flow = execute(block);
  scope_ = outer;
  return flow;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  const Runtime::Deeper deeper(runtime_);
  runtime_.line = statement.line;
  runtime_.step();
  switch (statement.kind) {
    case Statement::Kind::data:
      out_->append(statement.text);
      return Flow::normal;
    case Statement::Kind::output: {
      const Value value = evaluate(*statement.value);
      append_str(runtime_, value, *out_);
      return Flow::normal;
    }
    case Statement::Kind::branches:
      return execute_branches(statement);
    case Statement::Kind::loop:
      return execute_loop(statement, evaluate(*statement.value), 0);
    case Statement::Kind::set:
      assign(*statement.target, evaluate(*statement.value));
      return Flow::normal;
    case Statement::Kind::set_block:
    case Statement::Kind::filter:
      return execute_set_block(statement);
    case Statement::Kind::with:
      return execute_with(statement);
    case Statement::Kind::macro:
      define_macro(statement);
      return Flow::normal;
    case Statement::Kind::call_block:
      execute_call_block(statement);
      return Flow::normal;
    case Statement::Kind::scope:
      return execute_scoped(statement.body);
    case Statement::Kind::stop:
      return Flow::stop;
    case Statement::Kind::next:
      return Flow::next;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_branches(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (!condition || truth(evaluate(*condition))) return execute(body);
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_loop(const Statement& statement, const Value& items,
                                            int depth) {
  Scope* const outer = scope_;
  Loop::Filter filter;
  if (statement.condition) {
    Scope* const test = enter(outer);
    filter = [this, &statement, test](const Value& item) {
      Scope* const before = scope_;
      scope_ = test;
      assign(*statement.target, item);
      const bool keep = truth(evaluate(*statement.condition));
      scope_ = before;
      return keep;
    };
  }
  Loop& loop = loops_.emplace_back(runtime_, items, std::move(filter), depth);
  if (statement.recursive) {
    loop.statement = &statement;
    loop.scope = outer;
  }
  Scope* inner = enter(outer);
  // As in Jinja2, an iteration that was left early does not count.
  bool completed = false;
  while (const std::optional<Value> item = loop.next()) {
    runtime_.step();
    if (inner->captured) inner = enter(outer);
    inner->names.clear();
    scope_ = inner;
    store("loop", Value(&loop));
    assign(*statement.target, *item);
    const Flow flow = execute(statement.body);
    if (flow == Flow::stop) break;
    completed |= flow == Flow::normal;
  }
  loop.close();
  scope_ = outer;
  return completed ? Flow::normal : execute_scoped(statement.otherwise);
}

// Returns the content of a block as text, after its filters; it is printed or assigned.
Interpreter::Flow Interpreter::execute_set_block(const Statement& statement) {
  Builder content(runtime_);
  Builder* const outside = std::exchange(out_, &content);
  const Flow flow = execute_scoped(statement.body);
  out_ = outside;
  if (flow != Flow::normal) return flow;
  Value value = content.value();
  if (statement.value) {
    const Value* const before = std::exchange(block_text_, &value);
    const Value filtered = evaluate(*statement.value);
    block_text_ = before;
    value = filtered;
  }
  if (statement.target) {
    assign(*statement.target, value);
  } else {
    append_str(runtime_, value, *out_);
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_with(const Statement& statement) {
  // The values are evaluated in the surrounding scope, so they do not see each other.
  std::vector<Value> values;
  for (const auto& assignment : statement.assignments) {
    values.push_back(evaluate(*assignment.second));
  }
  Scope* const outer = scope_;
  scope_ = enter(outer);
  for (size_t i = 0; i < values.size(); ++i)
    assign(*statement.assignments[i].first, values[i]);
  const Flow flow = execute(statement.body);
  scope_ = outer;
  return flow;
}

void Interpreter::define_macro(const Statement& statement) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent)
    scope->captured = true;
  Callable macro{.name = statement.macro->name};
  macro.macro = statement.macro.get();
  macro.scope = scope_;
  store(statement.macro->name, runtime_.callable(macro));
}

void Interpreter::execute_call_block(const Statement& statement) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent)
    scope->captured = true;
  Callable caller{.name = "caller"};
  caller.macro = statement.macro.get();
  caller.scope = scope_;
  const Value callee = evaluate(*statement.value->operands[0]);
  Arguments arguments = evaluate_arguments(statement.value->call);
  arguments.named.emplace_back("caller", runtime_.callable(caller));
  runtime_.line = statement.line;
  append_str(runtime_, call(callee, arguments), *out_);
}

void Interpreter::assign(const Expression& target, const Value& value) {
  if (target.kind == Expression::Kind::name) return store(target.text, value);
  if (target.kind == Expression::Kind::member) return assign_member(target, value);
  const std::vector<Value> items = iterate(runtime_, value);
  if (items.size() != target.operands.size()) {
    runtime_.line = target.line;
    runtime_.fail(std::string("cannot unpack ") + std::to_string(items.size()) + " values into " +
                  std::to_string(target.operands.size()) + " names");
  }
  for (size_t i = 0; i < items.size(); ++i)
    assign(*target.operands[i], items[i]);
}

void Interpreter::assign_member(const Expression& target, const Value& value) {
  const Value* const found = find(target.text);
  Namespace* const space = found == nullptr ? nullptr : found->name_space();
  runtime_.line = target.line;
  if (space == nullptr) runtime_.fail("cannot assign attribute on non-namespace object");
  const std::string_view name = target.operands[0]->text;
  set_attribute(runtime_, *space, name, value);
}

}  // namespace walsh::jinja
