#include <algorithm>

#include "text/jinja/functions.h"
#include "text/jinja/loop.h"
#include "text/jinja/operations.h"

namespace walsh::jinja {
namespace {

Value dict_keys(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind(runtime, "keys", arguments, {});
  std::vector<Value> items = iterate(runtime, self);
  return runtime.sequence(Sequence::Kind::keys, std::move(items));
}

Value dict_values(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind(runtime, "values", arguments, {});
  std::vector<Value> items;
  for (const auto& entry : self.dict()->entries)
    items.push_back(entry.second);
  return runtime.sequence(Sequence::Kind::values, std::move(items));
}

Value dict_items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind(runtime, "items", arguments, {});
  std::vector<Value> items;
  for (const auto& entry : self.dict()->entries) {
    items.push_back(runtime.tuple({entry.first, entry.second}));
  }
  return runtime.sequence(Sequence::Kind::items, std::move(items));
}

Value dict_get(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "get", arguments, {"key", "default"});
  if (bound[0] == nullptr || !arguments.named.empty()) {
    runtime.fail("get() expects a key, and takes no keyword arguments");
  }
  if (const Value* found = runtime.find(*self.dict(), *bound[0])) return *found;
  return bound[1] != nullptr ? *bound[1] : Value(None());
}

Value dict_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind(runtime, "copy", arguments, {});
  Dict* const copy = runtime.dict();
  for (const auto& entry : self.dict()->entries)
    runtime.put(*copy, entry.first, entry.second);
  return copy;
}

Value list_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind(runtime, "copy", arguments, {});
  return runtime.list(iterate(runtime, self));
}

Value list_count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "count", arguments, {"value"});
  if (bound[0] == nullptr) runtime.fail("count() expects a value");
  const std::vector<Value>& items = self.sequence()->items;
  return static_cast<Integer>(std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return equal(runtime, item, *bound[0]);
  }));
}

Value list_index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto bound = bind(runtime, "index", arguments, {"value", "start", "stop"});
  if (bound[0] == nullptr) runtime.fail("index() expects a value");
  const std::vector<Value>& items = self.sequence()->items;
  const auto size = static_cast<int64_t>(items.size());
  const auto place = [&](const Value* value, int64_t missing) {
    const int64_t at = integer_argument(runtime, value, missing);
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  for (int64_t i = place(bound[1], 0); i < place(bound[2], size); ++i) {
    if (equal(runtime, items[static_cast<size_t>(i)], *bound[0])) return Integer{i};
  }
  runtime.fail("index(): the value is not in the list");
}

constexpr NamedFunction kDictMethods[] = {{"get", dict_get},
                                          {"items", dict_items},
                                          {"keys", dict_keys},
                                          {"values", dict_values},
                                          {"copy", dict_copy}};
constexpr NamedFunction kListMethods[] = {
    {"index", list_index}, {"count", list_count}, {"copy", list_copy}};

// These methods would modify an object; templates get no access to them.
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChanges[] = {"append", "clear",  "pop",  "reverse",
                                             "insert", "extend", "sort", "remove"};

template <typename Names>
bool one_of(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Function find_method(const Value& value, std::string_view name) {
  if (value.text() != nullptr) return find_text_method(name);
  if (value.dict() != nullptr) return look_up(kDictMethods, name);
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr || !sequence->indexed()) return nullptr;
  if (name == "copy" && sequence->kind != Sequence::Kind::list) return nullptr;
  return look_up(kListMethods, name);
}

Value missing(Runtime& runtime, const Value& value, std::string_view name) {
  return runtime.undefined(std::string("'") + type_name(value) + " object' has no attribute '" +
                           std::string(name) + "'");
}

// Finds methods and attributes, but no items of a dict.
Value own_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (const Undefined* undefined = value.as<Undefined>()) runtime.fail(std::string(undefined->why));
  if (value.loop() != nullptr) return value.loop()->attribute(name);
  if (const Namespace* space = value.name_space()) {
    for (const auto& [known, attribute] : space->attributes) {
      if (known == name) return attribute;
    }
    return missing(runtime, value, name);
  }
  if (const Function method = find_method(value, name)) {
    return runtime.callable({.name = name, .function = method, .self = value});
  }
  const Sequence* sequence = value.sequence();
  if (sequence != nullptr) {
    for (size_t i = 0; i < sequence->attributes.size(); ++i) {
      if (sequence->attributes[i] == name) return sequence->items[i];
    }
  }
  const bool list = sequence != nullptr && sequence->kind == Sequence::Kind::list;
  if ((value.dict() != nullptr && one_of(kDictChanges, name)) ||
      (list && one_of(kListChanges, name))) {
    return runtime.undefined(std::string("access to attribute '") + std::string(name) + "' of '" +
                             type_name(value) + "' object is unsafe: templates change nothing");
  }
  const Callable* callable = value.callable();
  if (callable != nullptr && name == "name") return Text{callable->name};
  return missing(runtime, value, name);
}

}  // namespace

Value attribute_of(Runtime& runtime, const Value& value, std::string_view name) {
  const Dict* const dict = value.dict();
  if (dict == nullptr || find_method(value, name) != nullptr || one_of(kDictChanges, name)) {
    return own_attribute(runtime, value, name);
  }
  const Value* const item = runtime.find(*dict, name);
  return item != nullptr ? *item : missing(runtime, value, name);
}

Value subscript_of(Runtime& runtime, const Value& value, const Value& key) {
  const Value item = item_of(runtime, value, key);
  if (!item.undefined() || key.text() == nullptr) return item;
  const Value attribute = own_attribute(runtime, value, key.text()->bytes);
  return attribute.undefined() ? item : attribute;
}

void set_attribute(Runtime& runtime, Namespace& space, std::string_view name, const Value& value) {
  if (name.substr(0, 1) == "_") {
    runtime.fail(std::string("a namespace cannot have the attribute '") + std::string(name) + "'");
  }
  runtime.step(space.attributes.size() / 16);
  for (auto& [known, place] : space.attributes) {
    if (known == name) {
      place = value;
      return;
    }
  }
  runtime.charge(sizeof(space.attributes[0]));
  space.attributes.emplace_back(name, value);
}

}  // namespace walsh::jinja
