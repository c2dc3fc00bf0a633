// Implements filters of lists and dicts.
#include <algorithm>
#include <charconv>
#include <optional>

#include "text/jinja/functions.h"
#include "text/jinja/letters.h"
#include "text/jinja/operations.h"
#include "text/jinja/printing.h"
#include "text/utf8.h"

namespace walsh::jinja {
namespace {

bool given(const Value* value) {
  return value != nullptr && !value->none();
}
bool truth_of(const Value* value, bool missing = false) {
  return value == nullptr ? missing : truth(*value);
}

// Returns value.a.b.0 for a path such as "a.b.0". An integer is an index.
Value attribute_at(Runtime& runtime, Value value, const Value& attribute) {
  if (attribute.text() == nullptr) return subscript_of(runtime, value, attribute);
  for (std::string_view rest = attribute.text()->bytes;;) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view name = rest.substr(0, dot);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool number = error == std::errc() && end == name.data() + name.size() && name[0] != '-';
    value = subscript_of(runtime, value, number ? Value(Integer{index}) : Value(Text{name}));
    if (dot == rest.size()) return value;
    rest.remove_prefix(dot + 1);
  }
}

// Returns the key by which an item is compared. It is one of its attributes, case-folded unless
// case_sensitive.
Value key_of(Runtime& runtime, const Value& item, const Value* attribute, bool case_sensitive) {
  const Value key = given(attribute) ? attribute_at(runtime, item, *attribute) : item;
  if (case_sensitive || key.text() == nullptr) return key;
  return runtime.text(lower(key.text()->bytes));
}

// Returns the keys that `attribute` names, separated by commas.
std::vector<Value> sort_keys(Runtime& runtime, const Value& item, const Value* attribute,
                             bool case_sensitive) {
  if (!given(attribute) || attribute->text() == nullptr) {
    return {key_of(runtime, item, attribute, case_sensitive)};
  }
  std::vector<Value> keys;
  std::string_view rest = attribute->text()->bytes;
  for (size_t comma = 0; comma != rest.npos; rest.remove_prefix(std::min(comma + 1, rest.size()))) {
    comma = rest.find(',');
    const Value name = Text{rest.substr(0, comma)};
    keys.push_back(key_of(runtime, item, &name, case_sensitive));
    if (comma == rest.npos) break;
  }
  return keys;
}

std::vector<Value> sorted(Runtime& runtime, std::vector<Value> items, const Value* attribute,
                          bool case_sensitive, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) {
    keyed.emplace_back(runtime.tuple(sort_keys(runtime, item, attribute, case_sensitive)), item);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return (reverse ? compare(runtime, b.first, a.first, "<")
                    : compare(runtime, a.first, b.first, "<")) < 0;
  });
  for (size_t i = 0; i < items.size(); ++i)
    items[i] = keyed[i].second;
  return items;
}

Value sort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  return runtime.list(
      sorted(runtime, iterate(runtime, value), bound[2], truth_of(bound[1]), truth_of(bound[0])));
}

Value unique(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "unique", arguments, {"case_sensitive", "attribute"});
  Dict* const seen = runtime.dict();
  std::vector<Value> items;
  for (const Value& item : iterate(runtime, value)) {
    const Value key = key_of(runtime, item, bound[1], truth_of(bound[0]));
    if (runtime.find(*seen, key) != nullptr) continue;
    runtime.put(*seen, key, Value(None()));
    items.push_back(item);
  }
  return runtime.iterator(std::move(items));
}

template <bool greatest>
Value extreme(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "min", arguments, {"case_sensitive", "attribute"});
  std::optional<Value> best, best_key;
  for (const Value& item : iterate(runtime, value)) {
    const Value key = key_of(runtime, item, bound[1], truth_of(bound[0]));
    if (best && (greatest ? compare(runtime, *best_key, key, "<")
                          : compare(runtime, key, *best_key, "<")) >= 0) {
      continue;
    }
    best = item;
    best_key = key;
  }
  return best ? *best : runtime.undefined("no aggregated item, sequence was empty");
}

Value sum(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "sum", arguments, {"attribute", "start"});
  Value total = bound[1] != nullptr ? *bound[1] : Value(Integer{0});
  for (const Value& item : iterate(runtime, value)) {
    total = apply(runtime, Operator::add, total,
                  given(bound[0]) ? attribute_at(runtime, item, *bound[0]) : item);
  }
  return total;
}

Value dictsort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (value.dict() == nullptr)
    runtime.fail(std::string("dictsort is applied to '") + type_name(value) + "'");
  const std::string_view by = bound[1] == nullptr ? "key" : text_argument(runtime, *bound[1]);
  if (by != "key" && by != "value") runtime.fail("dictsort sorts by 'key' or by 'value'");
  const Value place = Integer{by == "key" ? 0 : 1};
  std::vector<Value> items;
  for (const auto& entry : value.dict()->entries) {
    items.push_back(runtime.tuple({entry.first, entry.second}));
  }
  return runtime.list(
      sorted(runtime, std::move(items), &place, truth_of(bound[0]), truth_of(bound[2])));
}

Value items(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "items", arguments, {});
  std::vector<Value> pairs;
  if (!value.undefined()) {
    if (value.dict() == nullptr) runtime.fail("can only get item pairs from a mapping");
    for (const auto& entry : value.dict()->entries) {
      pairs.push_back(runtime.tuple({entry.first, entry.second}));
    }
  }
  return runtime.iterator(std::move(pairs));
}

Value length_filter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "length", arguments, {});
  return static_cast<Integer>(length(runtime, value));
}

Value first(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "first", arguments, {});
  Sequence* const sequence = value.sequence();
  if (sequence != nullptr && sequence->taken < sequence->items.size()) {
    const Value item = sequence->items[sequence->taken];
    if (sequence->kind == Sequence::Kind::iterator) ++sequence->taken;
    return item;
  }
  const std::vector<Value> all = iterate(runtime, value);
  return all.empty() ? runtime.undefined("no first item, sequence was empty") : all.front();
}

Value last(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "last", arguments, {});
  const Sequence* const sequence = value.sequence();
  if (sequence != nullptr && sequence->kind == Sequence::Kind::iterator) {
    runtime.fail("an iterator has no last item: use the filter list");
  }
  if (sequence != nullptr && !sequence->items.empty()) return sequence->items.back();
  const std::vector<Value> all = iterate(runtime, value);
  return all.empty() ? runtime.undefined("no last item, sequence was empty") : all.back();
}

Value list(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "list", arguments, {});
  return runtime.list(iterate(runtime, value));
}

Value reverse(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind(runtime, "reverse", arguments, {});
  std::vector<Value> all = iterate(runtime, value);
  std::reverse(all.begin(), all.end());
  if (value.text() == nullptr) return runtime.iterator(std::move(all));
  Builder out(runtime);
  for (const Value& character : all)
    out.append(character.text()->bytes);
  return out.value(value.text()->markup);
}

Value join(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "join", arguments, {"d", "attribute"});
  const std::string_view between = bound[0] == nullptr ? "" : to_text(runtime, *bound[0]).bytes;
  Builder out(runtime);
  bool begun = false;
  for (const Value& item : iterate(runtime, value)) {
    if (begun) out.append(between);
    append_str(runtime, given(bound[1]) ? attribute_at(runtime, item, *bound[1]) : item, out);
    begun = true;
  }
  return out.value();
}

Value default_filter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "default", arguments, {"default_value", "boolean"});
  if (!value.undefined() && (!truth_of(bound[1]) || truth(value))) return value;
  return bound[0] != nullptr ? *bound[0] : Value(Text{});
}

Value attr(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "attr", arguments, {"name"});
  if (bound[0] == nullptr) runtime.fail("attr expects a name");
  const std::string_view name = text_argument(runtime, *bound[0]);
  // Items of a dict do not count as attributes.
  if (value.dict() != nullptr && runtime.find(*value.dict(), name) != nullptr) {
    const Value attribute = attribute_of(runtime, Value(runtime.dict()), name);
    if (attribute.undefined()) return attribute;
  }
  return attribute_of(runtime, value, name);
}

// Returns the arguments of the filter or test that argument `from` names.
Arguments behind(const Arguments& arguments, size_t from) {
  Arguments rest;
  const auto begin = arguments.positional.begin() + static_cast<ptrdiff_t>(from);
  rest.positional.assign(begin, arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

Value map_attribute(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "map", arguments, {"attribute", "default"});
  std::vector<Value> mapped;
  for (const Value& item : iterate(runtime, value)) {
    Value found = attribute_at(runtime, item, *bound[0]);
    if (found.undefined() && bound[1] != nullptr) found = *bound[1];
    mapped.push_back(found);
  }
  return runtime.iterator(std::move(mapped));
}

Value map(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!truth(value)) return runtime.iterator({});  // None is such a value
  if (arguments.positional.empty()) {
    if (arguments.named.empty() || arguments.named[0].first != "attribute") {
      runtime.fail("map requires a filter argument");
    }
    return map_attribute(runtime, value, arguments);
  }
  const std::string_view name = text_argument(runtime, arguments.positional[0]);
  const Function filter = find_filter(name);
  if (filter == nullptr)
    runtime.fail(std::string("there is no filter '") + std::string(name) + "'");
  const Arguments rest = behind(arguments, 1);
  const Runtime::Deeper deeper(runtime);  // map may be applied by map
  std::vector<Value> mapped;
  for (const Value& item : iterate(runtime, value)) {
    runtime.step();
    mapped.push_back(filter(runtime, item, rest));
  }
  return runtime.iterator(std::move(mapped));
}

template <bool keep, bool by_attribute>
Value select(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!truth(value)) return runtime.iterator({});
  const size_t place = by_attribute ? 1 : 0;
  if (arguments.positional.size() < place) runtime.fail("the filter expects an attribute");
  Function test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > place) {
    const std::string_view name = text_argument(runtime, arguments.positional[place]);
    test = find_test(name);
    if (test == nullptr) runtime.fail(std::string("there is no test '") + std::string(name) + "'");
    rest = behind(arguments, place + 1);
  }
  std::vector<Value> kept;
  for (const Value& item : iterate(runtime, value)) {
    runtime.step();
    const Value seen = by_attribute ? attribute_at(runtime, item, arguments.positional[0]) : item;
    if (truth(test != nullptr ? test(runtime, seen, rest) : seen) == keep) kept.push_back(item);
  }
  return runtime.iterator(std::move(kept));
}

Value groupby(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound =
      bind(runtime, "groupby", arguments, {"attribute", "default", "case_sensitive"});
  if (bound[0] == nullptr) runtime.fail("groupby expects an attribute");
  const auto grouper = [&](const Value& item) {
    const Value found = attribute_at(runtime, item, *bound[0]);
    return found.undefined() && bound[1] != nullptr ? *bound[1] : found;
  };
  const bool sensitive = truth_of(bound[2]);
  std::vector<Value> pairs;  // each is a (key, item)
  for (const Value& item : iterate(runtime, value)) {
    pairs.push_back(runtime.tuple({grouper(item), item}));
  }
  const Value zero = Integer{0};
  pairs = sorted(runtime, std::move(pairs), &zero, sensitive, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < pairs.size();) {
    const Value key = key_of(runtime, pairs[i], &zero, sensitive);
    const Value shown = pairs[i].sequence()->items[0];
    std::vector<Value> members;
    for (; i < pairs.size() && equal(runtime, key, key_of(runtime, pairs[i], &zero, sensitive));
         ++i) {
      members.push_back(pairs[i].sequence()->items[1]);
    }
    groups.push_back(runtime.tuple({shown, runtime.list(std::move(members))}));
    groups.back().sequence()->attributes = {"grouper", "list"};
  }
  return runtime.list(std::move(groups));
}

Value batch(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = bind(runtime, "batch", arguments, {"linecount", "fill_with"});
  const int64_t size = integer_argument(runtime, bound[0], 0);
  if (size < 1 || size > 1'000'000) runtime.fail("batch: the size is not from 1 to 1000000");
  std::vector<Value> batches, current;
  const auto flush = [&] { batches.push_back(runtime.list(std::exchange(current, {}))); };
  for (const Value& item : iterate(runtime, value)) {
    if (current.size() == static_cast<size_t>(size)) flush();
    current.push_back(item);
  }
  if (!current.empty()) {
    if (given(bound[1])) {
      runtime.charge(static_cast<size_t>(size) * sizeof(Value));
      current.resize(static_cast<size_t>(size), *bound[1]);
    }
    flush();
  }
  return runtime.iterator(std::move(batches));
}

constexpr NamedFunction kFilters[] = {
    {"sort", sort},
    {"unique", unique},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"sum", sum},
    {"dictsort", dictsort},
    {"items", items},
    {"length", length_filter},
    {"count", length_filter},
    {"first", first},
    {"last", last},
    {"list", list},
    {"reverse", reverse},
    {"join", join},
    {"default", default_filter},
    {"d", default_filter},
    {"attr", attr},
    {"map", map},
    {"select", select<true, false>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<false, true>},
    {"groupby", groupby},
    {"batch", batch},
};

}  // namespace

Function find_sequence_filter(std::string_view name) {
  return look_up(kFilters, name);
}

}  // namespace walsh::jinja
