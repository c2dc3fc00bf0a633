#include "grammar/schema_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "grammar/json_schema.h"
#include "grammar/pattern_automaton.h"
#include "grammar/stack_space.h"
#include "io/printable.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

constexpr size_t kMaxRules = 10'000;
constexpr int64_t kMaxCount = int64_t{1} << 31;  // of characters, items and properties
constexpr int64_t kMaxMultiple = 1000;
constexpr int kMaxTrialDepth = 8;
constexpr size_t kMaxTrialBytes = size_t{16} << 20;  // of states; then they are made anew

// The formats as patterns. Dates have 28 days in every February, so that all of them exist.
constexpr const char* kDate =
    "[12][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
    "02-(0[1-9]|1[0-9]|2[0-8]))";
constexpr const char* kTime =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
constexpr const char* kByte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
constexpr const char* kLabel = "[A-Za-z0-9]([A-Za-z0-9-]{0,20}[A-Za-z0-9])?";

std::string pattern_of_format(const std::string& format) {
  const auto whole = [](const std::string& pattern) { return "^(" + pattern + ")$"; };
  const std::string host = fmt::format("{}(\\.{}){{0,3}}", kLabel, kLabel);
  if (format == "date") return whole(kDate);
  if (format == "time") return whole(kTime);
  if (format == "date-time") return whole(fmt::format("{}T{}", kDate, kTime));
  if (format == "duration")
    return whole(
        "P([0-9]{1,4}W|[0-9]{1,4}D|[0-9]{1,3}Y([0-9]{1,2}M)?|[0-9]{1,4}M|"
        "([0-9]{1,4}D)?T([0-9]{1,4}H([0-9]{1,4}M)?|[0-9]{1,4}M([0-9]{1,4}S)?|"
        "[0-9]{1,4}S))");
  if (format == "uuid")
    return whole("[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}");
  if (format == "ipv4") return whole(fmt::format("({}\\.){{3}}{}", kByte, kByte));
  if (format == "ipv6") return whole("([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}");
  if (format == "hostname") return whole(host);
  if (format == "email") return whole("[A-Za-z0-9_+-]{1,20}(\\.[A-Za-z0-9_+-]{1,20}){0,2}@" + host);
  if (format == "uri" || format == "iri" || format == "url")
    return whole("https?://" + host +
                 "(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~-]{0,30}){0,4}"
                 "(\\?[A-Za-z0-9._~=&-]{0,60})?(#[A-Za-z0-9._~-]{0,30})?");
  return "";
}

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

RuleId SchemaCompiler::rule_of(const OrderedJson& schema, const std::string& path) {
  if (schema == true) return json_.value();
  builder_.budget().spend(weight_of(schema), reader_.where() + path);
  const auto [place, added] = known_.try_emplace(schema.dump(), 0);
  if (added) {
    if (known_.size() > kMaxRules) {
      throw Error(ErrorCode::limit, reader_.where() + path,
                  fmt::format("leads to more than {} different schemas", kMaxRules));
    }
    place->second = builder_.rule(name_of(path));
    pending_.push_back({schema, path, place->second});
  }
  return place->second;
}

RuleId SchemaCompiler::compile(const OrderedJson& schema, const std::string& path) {
  const RuleId root = rule_of(schema, path);
  while (!pending_.empty()) {
    const Pending next = std::move(pending_.front());
    pending_.pop_front();
    for (const FlatSchema& way : reader_.read(next.schema, next.path)) {
      try {
        add_flat(builder_.start(next.rule), way, builder_.end(next.rule));
      } catch (const Error& e) {
        if (e.where() != builder_.where()) throw;
        throw Error(e.code(), reader_.where() + way.path, e.reason());
      }
    }
  }
  return root;
}

// Keywords of one kind of value, where no type is given, mean that kind; none: any value.
unsigned SchemaCompiler::meant_kinds(const FlatSchema& schema) const {
  using Names = std::vector<const char*>;
  static const std::array<std::pair<unsigned, Names>, 4> kOfKind = {
      {{kString, {"minLength", "maxLength", "pattern", "format"}},
       {kInteger | kFraction,
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
       {kArray, {"items", "prefixItems", "minItems", "maxItems"}},
       {kObject,
        {"properties", "required", "minProperties", "maxProperties", "patternProperties",
         "additionalProperties", "propertyNames", "unevaluatedProperties"}}}};
  if (schema.keywords.contains("type"))
    return kinds_of(schema.keywords, reader_.where() + schema.path);
  unsigned meant = 0;
  for (const auto& [kind, names] : kOfKind)
    for (const char* name : names)
      if (schema.keywords.contains(name)) meant |= kind;
  return meant;
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
  if ((kinds & kNull) != 0) builder_.empty(builder_.text(from, "null"), to);
  if ((kinds & kBoolean) != 0) builder_.empty(builder_.any_text(from, {"true", "false"}), to);
  if ((kinds & kString) != 0) add_string(from, schema, to);
  if ((kinds & kInteger) != 0) add_number(from, schema, (kinds & kFraction) == 0, to);
  if ((kinds & kArray) != 0) add_array(from, schema, to);
  if ((kinds & kObject) != 0) add_object(from, schema, to);
}

// Of the values of "enum" those that the other keywords allow.
OrderedJson SchemaCompiler::values_of(const FlatSchema& schema) {
  OrderedJson rest = schema.keywords;
  rest.erase("enum");
  const bool only_type = rest.size() == (rest.contains("type") ? 1 : 0);
  const unsigned kinds = kinds_of(rest, reader_.where() + schema.path);
  const OrderedJson& values = schema.keywords["enum"];
  const std::vector<bool> valid =
      only_type ? std::vector<bool>(values.size(), true) : generates(rest, values, schema.path);
  OrderedJson result = OrderedJson::array();
  for (size_t i = 0; i < values.size(); ++i)
    if (valid[i] && (kinds & kind_of(values[i])) != 0) result.push_back(values[i]);
  return result;
}

std::vector<bool> SchemaCompiler::generates(const OrderedJson& schema, const OrderedJson& values,
                                            const std::string& path) {
  const std::string where = reader_.where() + path;
  if (depth_ >= kMaxTrialDepth) {
    throw Error(ErrorCode::limit, where,
                fmt::format("values have to be tried inside each other more than {} times",
                            kMaxTrialDepth));
  }
  GraphBuilder builder(where, builder_);
  SchemaCompiler compiler(builder, root_, depth_ + 1);
  const RuleId rule = compiler.compile(schema);
  // Where nothing is valid there is no graph, so there is always something besides.
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
    StateId state = space->start();
    for (const char c : text)
      state = space->next(state, static_cast<uint8_t>(c));
    result.push_back(space->complete(state));
    builder_.budget().spend(text.size() + most - space->steps_left(), where);
  }
  return result;
}

SchemaCompiler::StringLimits SchemaCompiler::string_limits(const FlatSchema& schema) const {
  StringLimits limits{size_bound(schema, "minLength", 0), size_bound(schema, "maxLength", -1), {}};
  std::string pattern;
  const char* keyword = "pattern";
  const auto text_of = [&](const char* key) {
    const OrderedJson& value = schema.keywords[key];
    if (!value.is_string()) reader_.refuse(schema.path + "/" + key, "a string is expected");
    return value.get<std::string>();
  };
  if (schema.keywords.contains("format")) {
    const std::string format = text_of("format");
    pattern = pattern_of_format(format);
    keyword = "format";
    static const std::array kOpen = {"byte", "binary", "password", "regex", "json-pointer"};
    if (pattern.empty() && std::find(kOpen.begin(), kOpen.end(), format) == kOpen.end())
      reader_.refuse(schema.path + "/format",
                     fmt::format("'{}' cannot be enforced", printable(format, 40)));
  }
  if (schema.keywords.contains("pattern")) {
    if (!pattern.empty())
      reader_.refuse(schema.path + "/format", "cannot be enforced together with a pattern");
    pattern = text_of("pattern");
    keyword = "pattern";
  }
  if (!pattern.empty())
    limits.pattern = parse_pattern(pattern, reader_.where() + schema.path + "/" + keyword);
  return limits;
}

void SchemaCompiler::add_string(NodeId from, const FlatSchema& schema, NodeId to) {
  const auto [least, most, pattern] = string_limits(schema);
  if (most >= 0 && most < least) return;
  if (pattern) return add_pattern_string(builder_, json_, *pattern, least, most, from, to);
  if (least == 0 && most < 0) return builder_.call(from, json_.string(), to);
  const NodeId inside = builder_.text(from, "\"");
  builder_.byte(builder_.repeat(inside, json_.character(), least, most), '"', '"', to);
}

bool SchemaCompiler::is_text(const FlatSchema& schema) const {
  const auto values = schema.keywords.find("enum");
  if (values == schema.keywords.end()) return meant_kinds(schema) == kString;
  return std::all_of(values->begin(), values->end(),
                     [](const OrderedJson& value) { return value.is_string(); });
}

NodeId SchemaCompiler::add_text(NodeId from, const FlatSchema& schema, const std::string& mark,
                                const std::string& gap) {
  const std::string end = gap + mark;
  if (schema.keywords.contains("enum")) {
    std::vector<std::string> texts;
    for (const OrderedJson& value : values_of(schema))
      if (value.get_ref<const std::string&>().find(mark) == std::string::npos)
        texts.push_back(value.get<std::string>());
    if (texts.empty()) reader_.refuse(schema.path + "/enum", "has no value that can be written");
    return builder_.text(builder_.any_text(from, texts), end);
  }
  const auto [least, most, pattern] = string_limits(schema);
  if (!pattern && least == 0 && most < 0) return builder_.until(from, mark);
  if (most >= 0 && most < least) reader_.refuse(schema.path + "/maxLength", "is below minLength");
  const auto first = static_cast<char32_t>(static_cast<uint8_t>(mark.front()));
  const CodeSet others = complement({{first, first}});
  if (!pattern) {
    const RuleId character = builder_.rule("character");
    builder_.one_of(builder_.start(character), others, builder_.end(character));
    return builder_.text(builder_.repeat(from, character, least, most), end);
  }
  const NodeId to = builder_.node();
  if (!add_counted_pattern(builder_, *pattern, others, least, most, from, to))
    reader_.refuse(schema.path, "no text without '" + mark.substr(0, 1) + "' matches");
  return builder_.text(to, end);
}

void SchemaCompiler::add_number(NodeId from, const FlatSchema& schema, bool integer, NodeId to) {
  NumberRange range;
  const auto bound = [&](const char* key) -> std::optional<Decimal> {
    const auto found = schema.keywords.find(key);
    if (found == schema.keywords.end()) return std::nullopt;
    const std::string path = schema.path + "/" + key;
    if (!found->is_number()) reader_.refuse(path, "a number is expected");
    const auto decimal = parse_decimal(found->dump());
    if (!decimal) reader_.refuse(path, "cannot be enforced: it has more than 18 digits");
    return decimal;
  };
  // Both kinds of bounds may be given: the narrower one counts.
  const auto narrower = [&](const char* key, const char* excluded_key, bool upper) {
    const auto included = bound(key), excluded = bound(excluded_key);
    bool exclude = excluded.has_value();
    if (included && excluded) {
      const double a = schema.keywords[key].get<double>();
      const double b = schema.keywords[excluded_key].get<double>();
      exclude = upper ? b <= a : b >= a;
    }
    return std::pair(exclude ? excluded : included, exclude);
  };
  std::tie(range.least, range.least_excluded) = narrower("minimum", "exclusiveMinimum", false);
  std::tie(range.most, range.most_excluded) = narrower("maximum", "exclusiveMaximum", true);
  if (schema.keywords.contains("multipleOf")) {
    const OrderedJson& multiple = schema.keywords["multipleOf"];
    const double value = multiple.is_number() ? multiple.get<double>() : 0;
    if (!(value >= 1 && value <= kMaxMultiple) ||
        value != static_cast<double>(static_cast<int64_t>(value)))
      reader_.refuse(schema.path + "/multipleOf",
                     fmt::format("cannot be enforced: only 1 to {} can", kMaxMultiple));
    range.multiple = static_cast<int64_t>(value);
    integer = true;
  }
  if (integer) return add_integers(builder_, from, range, to);
  if (!range.least && !range.most) return builder_.call(from, json_.number(), to);
  add_numbers(builder_, from, range, to);
}

void SchemaCompiler::add_array(NodeId from, const FlatSchema& schema, NodeId to) {
  const OrderedJson none = OrderedJson::array();
  const bool tuple = schema.keywords.contains("prefixItems");
  const OrderedJson& first = tuple ? schema.keywords["prefixItems"] : none;
  int64_t least = size_bound(schema, "minItems", 0), most = size_bound(schema, "maxItems", -1);
  auto count = static_cast<int64_t>(first.size());
  if (most >= 0) count = std::min(count, most);
  const bool more = schema.keywords.contains("items") || !tuple || least > count;
  const OrderedJson items =
      schema.keywords.contains("items") ? schema.keywords["items"] : OrderedJson(true);
  least = std::max(least, count);
  if (!more || items == false) most = count;
  if (most >= 0 && most < least) return;
  const NodeId close = builder_.node();
  builder_.byte(close, ']', ']', to);
  NodeId at = builder_.call(builder_.text(from, "["), json_.space());
  if (least == 0) builder_.empty(at, close);
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) at = json_.spaced(at, ",");
    at = builder_.call(at, rule_of(first[static_cast<size_t>(i)],
                                   fmt::format("{}/prefixItems/{}", schema.path, i)));
  }
  const NodeId behind = builder_.node();  // the last item
  builder_.call(behind, json_.space(), close);
  if (most == count) {
    if (count > 0) builder_.empty(at, behind);
    return;
  }
  const RuleId item = rule_of(items, schema.path + "/items");
  if (count == 0) {
    at = builder_.call(at, item);
    ++count;
  }
  const RuleId next = builder_.rule(name_of(schema.path));
  builder_.call(json_.spaced(builder_.start(next), ","), item, builder_.end(next));
  builder_.empty(
      builder_.repeat(at, next, std::max<int64_t>(0, least - count), most < 0 ? -1 : most - count),
      behind);
}

RuleId add_json_schema(GraphBuilder& builder, const OrderedJson& schema) {
  if (const size_t size = schema.dump().size(); size > kMaxSchemaBytes) {
    throw Error(ErrorCode::limit, builder.where(),
                fmt::format("{} bytes, at most {} are read", size, kMaxSchemaBytes));
  }
  return SchemaCompiler(builder, schema).compile(schema);
}

RuleId add_json_object(GraphBuilder& builder) {
  return JsonRules(builder).object();
}

}  // namespace walsh::grammar
