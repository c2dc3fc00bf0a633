// Defines the global functions of templates.
#include <algorithm>

#include "io/printable.h"
#include "text/jinja/format.h"
#include "text/jinja/functions.h"
#include "text/jinja/operations.h"
#include "text/jinja/printing.h"
#include "text/utf8.h"

namespace walsh::jinja {
namespace {

constexpr Integer kMaxRange = 100'000;  // it counts items, as in Jinja2's sandbox
constexpr size_t kMaxMessage = 1000;  // a template's own error message has at most this many bytes

Value raise_exception(Runtime& runtime, const Value&, const Arguments& arguments) {
  const auto bound = bind(runtime, "raise_exception", arguments, {"message"});
  std::string message;
  if (bound[0] != nullptr) message = to_text(runtime, *bound[0]).bytes;
  if (message.size() > kMaxMessage) message = to_valid_utf8(message.substr(0, kMaxMessage)) + "...";
  runtime.fail(one_line(message));
}

Value strftime_now(Runtime& runtime, const Value&, const Arguments& arguments) {
  const auto bound = bind(runtime, "strftime_now", arguments, {"format"});
  if (bound[0] == nullptr) runtime.fail("strftime_now() expects a format");
  return format_time(runtime, text_argument(runtime, *bound[0]), runtime.time_now());
}

Value range(Runtime& runtime, const Value&, const Arguments& arguments) {
  const auto bound = bind(runtime, "range", arguments, {"start", "stop", "step"});
  if (bound[0] == nullptr) runtime.fail("range() expects an argument");
  const bool single = bound[1] == nullptr;
  const Integer start = single ? 0 : integer_argument(runtime, bound[0], 0);
  const Integer stop = integer_argument(runtime, single ? bound[0] : bound[1], 0);
  const Integer step = integer_argument(runtime, bound[2], 1);
  if (step == 0) runtime.fail("range() step must not be zero");
  const Integer span = step > 0 ? stop - start : start - stop, by = step > 0 ? step : -step;
  const Integer count = span <= 0 ? 0 : (span + by - 1) / by;
  if (count > kMaxRange) {
    runtime.fail_limit(std::string("range too big: more than ") + format_integer(kMaxRange) +
                       " items");
  }
  runtime.step(static_cast<uint64_t>(count) / 16);
  std::vector<Value> items;
  for (Integer i = 0; i < count; ++i)
    items.emplace_back(start + i * step);
  const Value value = runtime.sequence(Sequence::Kind::range, std::move(items));
  value.sequence()->start = start;
  value.sequence()->stop = stop;
  value.sequence()->step = step;
  return value;
}

// Passes on the entries that are given to dict() and namespace(), first those of a dict or of
// pairs, then named ones.
template <typename Put>
void take_entries(Runtime& runtime, const Arguments& arguments, Put put) {
  if (arguments.positional.size() > 1) runtime.fail("dict() takes at most one positional argument");
  for (const Value& given : arguments.positional) {
    if (const Dict* dict = given.dict()) {
      for (const auto& entry : dict->entries)
        put(entry.first, entry.second);
      continue;
    }
    for (const Value& pair : iterate(runtime, given)) {
      const std::vector<Value> items = iterate(runtime, pair);
      if (items.size() != 2) runtime.fail("dict() expects pairs of a key and a value");
      put(items[0], items[1]);
    }
  }
  for (const auto& [name, value] : arguments.named)
    put(Value(Text{name}), value);
}

Value dict(Runtime& runtime, const Value&, const Arguments& arguments) {
  Dict* const made = runtime.dict();
  take_entries(runtime, arguments,
               [&](const Value& key, const Value& value) { runtime.put(*made, key, value); });
  return made;
}

Value name_space(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Value made = runtime.name_space();
  take_entries(runtime, arguments, [&](const Value& key, const Value& value) {
    set_attribute(runtime, *made.name_space(), text_argument(runtime, key), value);
  });
  return made;
}

// Calls a joiner. Its state, like a cycler's, is a namespace that templates do not see.
Value joiner_call(Runtime&, const Value& self, const Arguments&) {
  auto& state = self.name_space()->attributes;
  const Value now = state[0].second;
  state[0].second = state[1].second;
  return now;
}

Value joiner(Runtime& runtime, const Value&, const Arguments& arguments) {
  const auto bound = bind(runtime, "joiner", arguments, {"sep"});
  const Value state = runtime.name_space();
  state.name_space()->attributes = {{"now", Value(Text{})},
                                    {"then", bound[0] != nullptr ? *bound[0] : Value(Text{", "})}};
  return runtime.callable({"joiner", joiner_call, state});
}

Value cycler_next(Runtime& runtime, const Value& self, const Arguments&) {
  auto& state = self.name_space()->attributes;
  const std::vector<Value>& items = state[2].second.sequence()->items;
  auto place = static_cast<size_t>(*as_integer(state[3].second));
  const Value now = items[place];
  place = (place + 1) % items.size();
  state[3].second = static_cast<Integer>(place);
  set_attribute(runtime, *self.name_space(), "current", items[place]);
  return now;
}

Value cycler_reset(Runtime& runtime, const Value& self, const Arguments&) {
  auto& state = self.name_space()->attributes;
  state[3].second = Integer{0};
  set_attribute(runtime, *self.name_space(), "current", state[2].second.sequence()->items[0]);
  return None();
}

Value cycler(Runtime& runtime, const Value&, const Arguments& arguments) {
  if (arguments.positional.empty()) runtime.fail("at least one item has to be provided");
  const Value state = runtime.name_space();
  state.name_space()->attributes = {{"next", runtime.callable({"next", cycler_next, state})},
                                    {"reset", runtime.callable({"reset", cycler_reset, state})},
                                    {"_items", runtime.tuple(arguments.positional)},
                                    {"_place", Value(Integer{0})},
                                    {"current", arguments.positional[0]}};
  return state;
}

constexpr NamedFunction kGlobals[] = {
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"range", range},
    {"dict", dict},
    {"namespace", name_space},
    {"joiner", joiner},
    {"cycler", cycler},
};

}  // namespace

Value global_of(Runtime& runtime, std::string_view name) {
  if (const Function function = look_up(kGlobals, name)) {
    return runtime.callable({.name = name, .function = function});
  }
  return runtime.undefined(std::string("'").append(name) + "' is undefined");
}

}  // namespace walsh::jinja
