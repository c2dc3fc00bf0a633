#include "grammar/schema_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "grammar/distinct_items.h"
#include "grammar/json_schema.h"
#include "grammar/schema_references.h"
#include "grammar/stack_space.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

constexpr size_t kMaxRules = 10'000;
constexpr int64_t kMaxCount = int64_t{1} << 31;  // it limits characters, items and properties
constexpr int kMaxTrialDepth = 8;
// The trial states are discarded when they have this size.
constexpr size_t kMaxTrialBytes = size_t{16} << 20;

std::string name_of(const std::string& path) {
  return path.empty() ? "the schema" : path;
}

}  // namespace

int64_t SchemaCompiler::size_bound(const FlatSchema& schema, const char* key,
                                   int64_t otherwise) const {
  const auto found = schema.keywords.find(key);
  if (found == schema.keywords.end()) return otherwise;
  const double value = found->is_number() ? found->get<double>() : -1;
  if (!(value >= 0) || value != static_cast<double>(static_cast<int64_t>(std::min(value, 1e15))))
    reader_.refuse(schema.path + "/" + key, "a count is expected");
  return static_cast<int64_t>(std::min(value, static_cast<double>(kMaxCount)));
}

int64_t SchemaCompiler::countable(int64_t least, int64_t most) {
  constexpr int64_t kMost = 1'000'000;
  return least <= kMost ? std::min(most, kMost) : most;
}

RuleId SchemaCompiler::rule_of(const OrderedJson& schema, const std::string& path,
                               const std::optional<OneForm>& form) {
  if (schema == true && !form) return json_.value();
  builder_.budget().spend(weight_of(schema), reader_.where() + path);
  const std::string kind = !form ? "" : form->sorted ? "sorted " : "one form ";
  const auto [place, added] = known_.try_emplace(kind + schema.dump(), 0);
  if (added) {
    if (known_.size() > kMaxRules) {
      throw Error(ErrorCode::limit, reader_.where() + path,
                  fmt::format("leads to more than {} different schemas", kMaxRules));
    }
    place->second = builder_.rule(name_of(path));
    pending_.push_back({schema, path, place->second, form});
  }
  return place->second;
}

RuleId SchemaCompiler::compile(const OrderedJson& schema, const std::string& path) {
  const RuleId root = rule_of(schema, path);
  make_pending();
  return root;
}

RuleId SchemaCompiler::compile(const Ways& ways) {
  const RuleId root = builder_.rule("the schema");
  add_ways(root, ways);
  make_pending();
  return root;
}

void SchemaCompiler::make_pending() {
  while (!pending_.empty()) {
    const Pending next = std::move(pending_.front());
    pending_.pop_front();
    Ways ways = reader_.read(next.schema, next.path);
    if (next.one_form) {
      // Several ways may have different orders.
      const bool sorted = next.one_form->sorted || ways.size() > 1;
      for (FlatSchema& way : ways)
        write_in_one_form(way, {next.one_form->list, sorted});
    }
    add_ways(next.rule, ways);
  }
}

void SchemaCompiler::add_ways(RuleId rule, const Ways& ways) {
  for (const FlatSchema& way : ways) {
    try {
      add_flat(builder_.start(rule), way, builder_.end(rule));
    } catch (const Error& e) {
      if (e.where() != builder_.where()) throw;
      throw Error(e.code(), reader_.where() + way.path, e.reason());
    }
  }
}

// Returns the kinds of values that a schema means. Without "type", keywords that apply to one kind
// imply that kind; without such keywords any kind is meant.
unsigned SchemaCompiler::meant_kinds(const FlatSchema& schema) const {
  using Names = std::vector<const char*>;
  static const std::array<std::pair<unsigned, Names>, 4> kOfKind = {
      {{kString, {"minLength", "maxLength", "pattern", "format", "content", "-pattern", "-format"}},
       {kInteger | kFraction,
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
         "-multipleOf"}},
       {kArray, {"items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems"}},
       {kObject,
        {"properties", "required", "minProperties", "maxProperties", "patternProperties", "others",
         "has", "propertyNames"}}}};
  if (schema.keywords.contains("type"))
    return kinds_of(schema.keywords, reader_.where() + schema.path);
  unsigned meant = 0;
  for (const auto& [kind, names] : kOfKind)
    for (const char* name : names)
      if (schema.keywords.contains(name)) meant |= kind;
  return meant == 0 && schema.keywords.contains("-enum") ? unsigned{kAnyKind} : meant;
}

void SchemaCompiler::add_flat(NodeId from, const FlatSchema& schema, NodeId to) {
  if (schema.keywords.contains("enum")) {
    std::vector<std::string> texts;
    for (const OrderedJson& value : values_of(schema))
      texts.push_back(value.dump());
    if (!texts.empty()) builder_.empty(builder_.any_text(from, texts), to);
    return;
  }
  const bool typed = schema.keywords.contains("type");
  const unsigned kinds = meant_kinds(schema);
  if (kinds == 0 && !typed) return builder_.call(from, json_.value(), to);
  const OrderedJson excluded = schema.keywords.value("-enum", OrderedJson::array());
  const auto allowed = [&](const OrderedJson& value) {
    return std::find(excluded.begin(), excluded.end(), value) == excluded.end();
  };
  std::vector<std::string> words;
  if ((kinds & kNull) != 0 && allowed(nullptr)) words.emplace_back("null");
  if ((kinds & kBoolean) != 0 && allowed(true)) words.emplace_back("true");
  if ((kinds & kBoolean) != 0 && allowed(false)) words.emplace_back("false");
  if (!words.empty()) builder_.empty(builder_.any_text(from, words), to);
  if ((kinds & kString) != 0) add_string(from, schema, to);
  if ((kinds & (kInteger | kFraction)) != 0) add_number(from, schema, kinds, to);
  // For arrays and objects only the empty one can be excluded separately.
  const auto without_empty = [&](const OrderedJson& empty, const char* least) {
    FlatSchema rest = schema;
    for (const OrderedJson& value : excluded) {
      if (value.type() != empty.type()) continue;
      if (!value.empty()) return std::optional<FlatSchema>();
      if (size_bound(rest, least, 0) == 0) rest.keywords[least] = 1;
    }
    return std::optional(std::move(rest));
  };
  if ((kinds & kArray) != 0)
    if (const auto rest = without_empty(OrderedJson::array(), "minItems"))
      add_array(from, *rest, to);
  if ((kinds & kObject) != 0)
    if (const auto rest = without_empty(OrderedJson::object(), "minProperties"))
      add_object(from, *rest, to);
}

// Returns the values of "enum" that the other keywords allow.
OrderedJson SchemaCompiler::values_of(const FlatSchema& schema) {
  FlatSchema rest = schema;
  for (const char* key : {"enum", "oneForm", "sortedNames"})
    rest.keywords.erase(key);
  const bool only_type = rest.keywords.size() == (rest.keywords.contains("type") ? 1 : 0);
  const unsigned kinds = kinds_of(rest.keywords, reader_.where() + schema.path);
  // Keywords for one kind of value do not restrict others.
  if (!only_type && !rest.keywords.contains("type")) rest.keywords["type"] = names_of(kAnyKind);
  const OrderedJson& values = schema.keywords["enum"];
  const std::vector<bool> valid =
      only_type ? std::vector<bool>(values.size(), true) : generates({rest}, values, schema.path);
  OrderedJson result = OrderedJson::array();
  for (size_t i = 0; i < values.size(); ++i)
    if (valid[i] && (kinds & kind_of(values[i])) != 0) result.push_back(values[i]);
  return result;
}

std::vector<bool> SchemaCompiler::generates(const Ways& ways, const OrderedJson& values,
                                            const std::string& path) {
  const std::string where = reader_.where() + path;
  if (depth_ >= kMaxTrialDepth) {
    throw Error(ErrorCode::limit, where,
                fmt::format("conditions on values are nested more than {} times", kMaxTrialDepth));
  }
  GraphBuilder builder(where, builder_);
  SchemaCompiler compiler(builder, root_, depth_ + 1);
  const RuleId rule = compiler.compile(ways);
  // A graph that matches nothing cannot be built, so an alternative is always added.
  const RuleId both = builder.rule("value or nothing");
  builder.call(builder.start(both), rule, builder.end(both));
  builder.byte(builder.start(both), 0xFF, 0xFF, builder.end(both));
  const Graph graph = builder.finish(both);
  std::optional<StackSpace> space(std::in_place, graph, where);
  std::vector<bool> result;
  for (const OrderedJson& value : values) {
    const std::string text = value.dump();
    const uint64_t most = 100'000 + 1000 * text.size();
    if (space->bytes() > kMaxTrialBytes) space.emplace(graph, where);
    space->allow(most);
    const DistinctItems none;
    DistinctItems::Trial items(none);
    const StateId state = read_text(*space, space->start(), items, text);
    result.push_back(space->complete(state));
    builder_.budget().spend(text.size() + most - space->steps_left(), where);
  }
  return result;
}

RuleId add_json_schema(GraphBuilder& builder, const OrderedJson& schema) {
  if (const size_t size = schema.dump().size(); size > kMaxSchemaBytes) {
    throw Error(ErrorCode::limit, builder.where(),
                fmt::format("it has {} bytes, but at most {} are allowed", size, kMaxSchemaBytes));
  }
  const OrderedJson root = with_pointers(schema, builder.where(), builder.budget());
  return SchemaCompiler(builder, root).compile(root);
}

RuleId add_json_object(GraphBuilder& builder) {
  return JsonRules(builder).object();
}

}  // namespace walsh::grammar
