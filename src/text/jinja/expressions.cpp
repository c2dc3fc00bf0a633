#include "text/jinja/functions.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/printing.h"

namespace walsh::jinja {
namespace {

Operator operator_of(std::string_view sign) {
  if (sign == "+") return Operator::add;
  if (sign == "-") return Operator::subtract;
  if (sign == "*") return Operator::multiply;
  if (sign == "/") return Operator::divide;
  if (sign == "//") return Operator::floor_divide;
  return sign == "%" ? Operator::modulo : Operator::power;
}

bool holds(Runtime& runtime, std::string_view sign, const Value& a, const Value& b) {
  if (sign == "==") return equal(runtime, a, b);
  if (sign == "!=") return !equal(runtime, a, b);
  if (sign == "in") return contains(runtime, b, a);
  if (sign == "not in") return !contains(runtime, b, a);
  const int order = compare(runtime, a, b, sign);
  if (order == 2) return false;  // one of them is not a number
  if (sign == "<") return order < 0;
  if (sign == "<=") return order <= 0;
  return sign == ">" ? order > 0 : order >= 0;
}

}  // namespace

Value Interpreter::evaluate(const Expression& expression) {
  using Kind = Expression::Kind;
  const Runtime::Deeper deeper(runtime_);
  runtime_.line = expression.line;
  runtime_.step();
  const auto operand = [&](size_t i) { return evaluate(*expression.operands[i]); };
  switch (expression.kind) {
    case Kind::literal:
      return evaluate_literal(expression);
    case Kind::name:
      return evaluate_name(expression);
    case Kind::list:
      return runtime_.list(evaluate_all(expression.operands));
    case Kind::tuple:
      return runtime_.tuple(evaluate_all(expression.operands));
    case Kind::dict:
      return evaluate_dict(expression);
    case Kind::attribute: {
      const Value object = operand(0);
      runtime_.line = expression.line;
      return attribute_of(runtime_, object, expression.text);
    }
    case Kind::item: {
      const Value object = operand(0), key = operand(1);
      runtime_.line = expression.line;
      return subscript_of(runtime_, object, key);
    }
    case Kind::slice:
      return evaluate_slice(expression);
    case Kind::call: {
      const Value callee = operand(0);
      const Arguments arguments = evaluate_arguments(expression.call);
      runtime_.line = expression.line;
      return call(callee, arguments);
    }
    case Kind::filter:
      return evaluate_filter(expression);
    case Kind::test:
      return evaluate_test(expression);
    case Kind::choice:
      return evaluate_choice(expression);
    case Kind::logic_or: {
      const Value left = operand(0);
      return truth(left) ? left : operand(1);
    }
    case Kind::logic_and: {
      const Value left = operand(0);
      return truth(left) ? operand(1) : left;
    }
    case Kind::logic_not:
      return !truth(operand(0));
    case Kind::negative:
      return negate(runtime_, operand(0));
    case Kind::positive:
      return negate(runtime_, negate(runtime_, operand(0)));
    case Kind::concat:
      return evaluate_concat(expression);
    case Kind::compare:
      return evaluate_compare(expression);
    case Kind::binary:
      return evaluate_binary(expression);
    case Kind::member:
      break;
  }
  runtime_.fail("not an expression");
}

Value Interpreter::evaluate_literal(const Expression& expression) {
  return std::visit(
      [](const auto& literal) {
        if constexpr (std::is_same_v<std::decay_t<decltype(literal)>, std::string>) {
          return Value(Text{literal});
        } else {
          return Value(literal);
        }
      },
      expression.literal);
}

Value Interpreter::evaluate_name(const Expression& expression) {
  if (const Value* value = find(expression.text)) return *value;
  return global_of(runtime_, expression.text);
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const ExpressionPtr& expression : expressions)
    values.push_back(evaluate(*expression));
  return values;
}

Value Interpreter::evaluate_dict(const Expression& expression) {
  Dict* const dict = runtime_.dict();
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    const Value key = evaluate(*expression.operands[i]);
    runtime_.put(*dict, key, evaluate(*expression.operands[i + 1]));
  }
  return dict;
}

Value Interpreter::evaluate_slice(const Expression& expression) {
  const Value object = evaluate(*expression.operands[0]);
  Value bounds[3] = {None(), None(), None()};
  for (size_t i = 0; i < 3; ++i) {
    if (expression.operands[i + 1]) bounds[i] = evaluate(*expression.operands[i + 1]);
  }
  runtime_.line = expression.line;
  return slice_of(runtime_, object, bounds[0], bounds[1], bounds[2]);
}

Value Interpreter::evaluate_choice(const Expression& expression) {
  if (truth(evaluate(*expression.operands[0]))) return evaluate(*expression.operands[1]);
  if (expression.operands[2]) return evaluate(*expression.operands[2]);
  return Undefined{"the inline if-expression evaluated to false and no else section was defined"};
}

Value Interpreter::evaluate_concat(const Expression& expression) {
  Builder out(runtime_);
  for (const ExpressionPtr& operand : expression.operands) {
    append_str(runtime_, evaluate(*operand), out);
  }
  return out.value();
}

Value Interpreter::evaluate_compare(const Expression& expression) {
  Value left = evaluate(*expression.operands[0]);
  for (size_t i = 0; i < expression.signs.size(); ++i) {
    const Value right = evaluate(*expression.operands[i + 1]);
    runtime_.line = expression.line;
    if (!holds(runtime_, expression.signs[i], left, right)) return false;
    left = right;
  }
  return true;
}

Value Interpreter::evaluate_binary(const Expression& expression) {
  const Value a = evaluate(*expression.operands[0]), b = evaluate(*expression.operands[1]);
  runtime_.line = expression.line;
  return apply(runtime_, operator_of(expression.text), a, b);
}

Value Interpreter::evaluate_filter(const Expression& expression) {
  const Function function = find_filter(expression.text);
  if (function == nullptr)
    runtime_.fail(std::string("there is no filter '") + expression.text + "'");
  const Value value = expression.operands[0] ? evaluate(*expression.operands[0]) : *block_text_;
  const Arguments arguments = evaluate_arguments(expression.call);
  runtime_.line = expression.line;
  return function(runtime_, value, arguments);
}

Value Interpreter::evaluate_test(const Expression& expression) {
  const Function function = find_test(expression.text);
  if (function == nullptr) runtime_.fail(std::string("there is no test '") + expression.text + "'");
  const Value value = evaluate(*expression.operands[0]);
  const Arguments arguments = evaluate_arguments(expression.call);
  runtime_.line = expression.line;
  return function(runtime_, value, arguments);
}

Arguments Interpreter::evaluate_arguments(const Call& call) {
  Arguments arguments;
  arguments.positional = evaluate_all(call.positional);
  for (const auto& [name, value] : call.named)
    arguments.named.emplace_back(name, evaluate(*value));
  if (call.rest) {
    for (const Value& value : iterate(runtime_, evaluate(*call.rest))) {
      arguments.positional.push_back(value);
    }
  }
  if (call.named_rest) {
    const Value rest = evaluate(*call.named_rest);
    if (rest.dict() == nullptr) runtime_.fail("argument after ** must be a mapping");
    for (const auto& [name, value] : rest.dict()->entries) {
      arguments.named.emplace_back(text_argument(runtime_, name), value);
    }
  }
  return arguments;
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (const Undefined* undefined = callee.as<Undefined>()) {
    runtime_.fail(std::string(undefined->why));
  }
  if (const Loop* loop = callee.loop()) return call_loop(*loop, arguments);
  const Callable* const callable = callee.callable();
  if (callable == nullptr)
    runtime_.fail(std::string("'") + type_name(callee) + "' object is not callable");
  if (callable->macro != nullptr) return call_macro(*callable, arguments);
  return callable->function(runtime_, callable->self, arguments);
}

Value Interpreter::call_loop(const Loop& loop, const Arguments& arguments) {
  if (loop.statement == nullptr) runtime_.fail("the loop must have the 'recursive' marker");
  if (arguments.positional.size() != 1) runtime_.fail("loop() takes one argument");
  Builder content(runtime_);
  Builder* const outside = std::exchange(out_, &content);
  Scope* const scope = std::exchange(scope_, loop.scope);
  execute_loop(*loop.statement, arguments.positional[0], loop.depth() + 1);
  scope_ = scope;
  out_ = outside;
  return content.value();
}

Value Interpreter::call_macro(const Callable& callable, const Arguments& arguments) {
  if (++macro_depth_ > runtime_.limits().macro_depth) {
    runtime_.fail_limit("calls of macros are nested deeper than " +
                        std::to_string(runtime_.limits().macro_depth) + " levels");
  }
  Scope* const scope = std::exchange(scope_, enter(callable.scope));
  bind_macro(*callable.macro, arguments);
  Builder content(runtime_);
  Builder* const outside = std::exchange(out_, &content);
  execute(callable.macro->body);
  out_ = outside;
  scope_ = scope;
  --macro_depth_;
  return content.value();
}

void Interpreter::bind_macro(const Macro& macro, const Arguments& arguments) {
  const std::vector<std::string>& names = macro.parameters;
  const size_t given = std::min(names.size(), arguments.positional.size());
  if (arguments.positional.size() > names.size() && !macro.takes_varargs) {
    runtime_.fail(std::string("macro '") + macro.name + "' takes not more than " +
                  std::to_string(names.size()) + " argument(s)");
  }
  std::vector<const Value*> values(names.size(), nullptr);
  for (size_t i = 0; i < given; ++i)
    values[i] = &arguments.positional[i];
  Dict* const others = macro.takes_kwargs ? runtime_.dict() : nullptr;
  Value caller = runtime_.undefined("no caller defined");
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(names.begin(), names.end(), name);
    const auto index = static_cast<size_t>(place - names.begin());
    if (place != names.end()) {
      if (values[index] != nullptr) {
        runtime_.fail(std::string("macro '") + macro.name + "' got twice the argument '" + *place +
                      "'");
      }
      values[index] = &value;
    } else if (name == "caller" && macro.takes_caller) {
      caller = value;
    } else if (others != nullptr) {
      runtime_.put(*others, Value(Text{name}), value);
    } else {
      runtime_.fail(std::string("macro '") + macro.name + "' takes no keyword argument '" +
                    std::string(name) + "'");
    }
  }
  if (macro.takes_caller) store("caller", caller);
  if (others != nullptr) store("kwargs", Value(others));
  if (macro.takes_varargs) {
    const auto rest = arguments.positional.begin() + static_cast<ptrdiff_t>(given);
    store("varargs", runtime_.tuple({rest, arguments.positional.end()}));
  }
  // A default may use the parameters in front of it.
  const size_t first_default = names.size() - macro.defaults.size();
  for (size_t i = 0; i < names.size(); ++i) {
    if (values[i] != nullptr) {
      store(names[i], *values[i]);
    } else if (i >= first_default) {
      store(names[i], evaluate(*macro.defaults[i - first_default]));
    } else {
      store(names[i],
            runtime_.undefined(std::string("parameter '") + names[i] + "' was not provided"));
    }
  }
}

}  // namespace walsh::jinja
