// Compiles arrays, with items by position, the number of items, contains and uniqueItems.
#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "grammar/schema_compiler.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

constexpr size_t kMaxCounted = 5'000;  // an array with `contains` may have this many states
constexpr size_t kMaxSubsets = 6;      // every order of this many values can be generated
constexpr size_t kMaxDistinct = 256;   // an array whose items must differ may have this many values

struct Contained {
  OrderedJson schema;
  int64_t least, most, from;
};

bool has_fraction(const OrderedJson& value) {
  if (!value.is_structured()) return value.is_number_float();
  return std::any_of(value.begin(), value.end(), has_fraction);
}

}  // namespace

// Returns all values of a schema that has few of them, or nothing.
std::optional<OrderedJson> SchemaCompiler::all_values(const OrderedJson& schema,
                                                      const std::string& path) {
  OrderedJson values = OrderedJson::array();
  const auto add = [&](const OrderedJson& value) {
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  };
  for (const FlatSchema& way : reader_.read(schema, path)) {
    if (way.keywords.contains("enum")) {
      for (const OrderedJson& value : values_of(way))
        add(value);
    } else {
      const unsigned kinds = meant_kinds(way);
      if (kinds == 0 || (kinds & ~unsigned{kNull | kBoolean}) != 0) return std::nullopt;
      if ((kinds & kNull) != 0) add(nullptr);
      if ((kinds & kBoolean) != 0) add(true), add(false);
      if (way.keywords.contains("-enum")) return std::nullopt;
    }
    if (values.size() > kMaxDistinct) return std::nullopt;
  }
  return values;
}

// Adds a few values, in any order.
void SchemaCompiler::add_any_order(NodeId from, const FlatSchema& schema, const OrderedJson& values,
                                   int64_t least, int64_t most, NodeId to) {
  const NodeId close = builder_.node(), behind = builder_.node();
  builder_.byte(close, ']', ']', to);
  builder_.call(behind, json_.space(), close);
  const NodeId open = builder_.call(builder_.text(from, "["), json_.space());
  if (least == 0) builder_.empty(open, close);
  std::map<uint64_t, NodeId> nodes;  // their keys are the sets of values written so far
  std::vector<uint64_t> waiting;
  const auto node_of = [&](uint64_t written) {
    const auto [place, added] = nodes.try_emplace(written, 0);
    if (added) {
      place->second = builder_.node();
      waiting.push_back(written);
    }
    return place->second;
  };
  builder_.empty(open, node_of(0));
  while (!waiting.empty()) {
    const uint64_t written = waiting.back();
    waiting.pop_back();
    const NodeId node = nodes.at(written);
    const int64_t count = std::popcount(written);
    if (count >= std::max<int64_t>(1, least)) builder_.empty(node, behind);
    if (count == most) continue;
    const NodeId next = count == 0 ? node : json_.spaced(node, ",");
    for (size_t i = 0; i < values.size(); ++i) {
      const uint64_t bit = uint64_t{1} << i;
      if ((written & bit) == 0)
        builder_.call(next, inner_rule(schema, {{"const", values[i]}}, schema.path + "/items"),
                      node_of(written | bit));
    }
  }
}

// Returns the rule of an item. Items that must differ have a single spelling each.
RuleId SchemaCompiler::item_rule(const FlatSchema& schema, const OrderedJson& item,
                                 const std::string& path) {
  if (schema.keywords.contains("oneForm") || !schema.keywords.contains("uniqueItems"))
    return inner_rule(schema, item, path);
  const bool sorted =
      schema.keywords.contains("prefixItems") || schema.keywords.contains("contains");
  return rule_of(item, path, OneForm{schema.path + "/uniqueItems", sorted});
}

RuleId SchemaCompiler::inner_rule(const FlatSchema& schema, const OrderedJson& inner,
                                  const std::string& path) {
  const auto list = schema.keywords.find("oneForm");
  if (list == schema.keywords.end()) return rule_of(inner, path);
  return rule_of(inner, path,
                 OneForm{list->get<std::string>(), schema.keywords.contains("sortedNames")});
}

// Gives each value of a schema a single spelling. Where any value is allowed, only strings, numbers
// and words remain.
void SchemaCompiler::write_in_one_form(FlatSchema& way, const OneForm& form) const {
  OrderedJson& keywords = way.keywords;
  if (keywords.contains("enum")) {
    OrderedJson values = OrderedJson::array();
    std::set<Json> known;
    for (const OrderedJson& value : keywords["enum"]) {
      if (has_fraction(value))
        reader_.refuse(form.list, "cannot be enforced: 'enum' has numbers with a fraction");
      const Json sorted = value;
      if (known.insert(sorted).second) values.push_back(form.sorted ? OrderedJson(sorted) : value);
    }
    keywords["enum"] = std::move(values);
  } else if (const unsigned meant = meant_kinds(way);
             !keywords.contains("type") && (meant == 0 || meant == kAnyKind)) {
    keywords["type"] = names_of(kNull | kBoolean | kInteger | kFraction | kString);
  }
  keywords["oneForm"] = form.list;
  if (form.sorted || keywords.contains("has")) keywords["sortedNames"] = true;
}

NodeId SchemaCompiler::open_list(NodeId from, const FlatSchema& schema) {
  if (!schema.keywords.contains("uniqueItems")) return builder_.text(from, "[");
  if (const auto outer = schema.keywords.find("oneForm"); outer != schema.keywords.end())
    reader_.refuse(outer->get<std::string>(),
                   "cannot be enforced: its items contain lists with uniqueItems themselves");
  return builder_.open_distinct(from);
}

// Makes one node per number of items, as far as it matters, and per number of items that match each
// `contains`.
void SchemaCompiler::add_containing(NodeId from, const FlatSchema& schema, int64_t least,
                                    int64_t most, NodeId to) {
  std::vector<Contained> contained;
  const auto prefix = schema.keywords.value("prefixItems", OrderedJson::array());
  const OrderedJson items = schema.keywords.value("items", OrderedJson(true));
  auto places = std::max<int64_t>({1, least, most, static_cast<int64_t>(prefix.size())});
  for (const OrderedJson& entry : schema.keywords["contains"]) {
    contained.push_back({entry["schema"], entry["least"], entry["most"], entry["from"]});
    places = std::max(places, contained.back().from);
  }
  const NodeId close = builder_.node(), behind = builder_.node();
  builder_.byte(close, ']', ']', to);
  builder_.call(behind, json_.space(), close);
  // The first count is the number of items; each `contains` adds the number of its matches.
  using Counts = std::vector<int64_t>;
  std::map<Counts, NodeId> nodes;
  std::vector<Counts> waiting;
  const auto node_of = [&](const Counts& counts) {
    const auto [place, added] = nodes.try_emplace(counts, 0);
    if (added) {
      if (nodes.size() > kMaxCounted)
        reader_.refuse(schema.path + "/contains", "cannot be enforced: too many items are counted");
      place->second = builder_.node();
      waiting.push_back(counts);
    }
    return place->second;
  };
  const NodeId open = builder_.call(open_list(from, schema), json_.space());
  builder_.empty(open, node_of(Counts(contained.size() + 1, 0)));
  while (!waiting.empty()) {
    const Counts counts = waiting.back();
    waiting.pop_back();
    const NodeId node = nodes.at(counts);
    bool enough = counts[0] >= least;
    for (size_t i = 0; i < contained.size(); ++i)
      enough &= counts[i + 1] >= contained[i].least;
    if (enough) builder_.empty(node, counts[0] == 0 ? close : behind);
    if (most >= 0 && counts[0] == most) continue;
    const auto place = static_cast<size_t>(counts[0]);
    // Each `contains` counts the item as a match or not. Where matches are limited, an item that is
    // not counted must not match.
    struct Way {
      OrderedJson item;
      Counts then;
    };
    std::vector<Way> ways = {{place < prefix.size() ? prefix[place] : items, counts}};
    ways[0].then[0] = std::min(counts[0] + 1, places);
    for (size_t i = 0; i < contained.size(); ++i) {
      const Contained& one = contained[i];
      if (counts[0] < one.from) continue;
      std::vector<Way> more;
      for (const Way& way : ways) {
        const bool bounded = one.most >= 0;
        more.push_back(way);
        if (bounded)
          more.back().item = SchemaReader::both(way.item, SchemaReader::opposite(one.schema));
        if (bounded ? counts[i + 1] == one.most : counts[i + 1] == one.least) continue;
        more.push_back({SchemaReader::both(way.item, one.schema), way.then});
        ++more.back().then[i + 1];
      }
      ways = std::move(more);
    }
    const NodeId next = counts[0] == 0 ? node : json_.spaced(node, ",");
    for (const Way& way : ways)
      if (way.item != false)
        builder_.call(next, item_rule(schema, way.item, schema.path + "/items"), node_of(way.then));
  }
}

void SchemaCompiler::add_array(NodeId from, const FlatSchema& schema, NodeId to) {
  const OrderedJson none = OrderedJson::array();
  const bool tuple = schema.keywords.contains("prefixItems");
  const OrderedJson& first = tuple ? schema.keywords["prefixItems"] : none;
  int64_t least = size_bound(schema, "minItems", 0), most = size_bound(schema, "maxItems", -1);
  auto count = static_cast<int64_t>(first.size());
  if (most >= 0) count = std::min(count, most);
  const bool more = schema.keywords.contains("items") || !tuple || least > count ||
                    schema.keywords.contains("contains");
  const OrderedJson items =
      schema.keywords.contains("items") ? schema.keywords["items"] : OrderedJson(true);
  least = std::max(least, count);
  if (!more || items == false) most = count;
  most = countable(least, most);
  if (most >= 0 && most < least) return;
  FlatSchema one = schema;
  if (most == 0 || most == 1) one.keywords.erase("uniqueItems");
  const bool distinct = one.keywords.contains("uniqueItems");
  if (distinct && !tuple && !schema.keywords.contains("contains")) {
    if (const auto values = all_values(items, schema.path + "/items")) {
      const auto size = static_cast<int64_t>(values->size());
      most = most < 0 ? size : std::min(most, size);
      if (least > most) return;
      if (values->size() <= kMaxSubsets) return add_any_order(from, one, *values, least, most, to);
    }
  }
  if (schema.keywords.contains("contains")) return add_containing(from, one, least, most, to);
  const NodeId close = builder_.node();
  builder_.byte(close, ']', ']', to);
  NodeId at = builder_.call(open_list(from, one), json_.space());
  if (least == 0) builder_.empty(at, close);
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) at = json_.spaced(at, ",");
    at = builder_.call(at, item_rule(one, first[static_cast<size_t>(i)],
                                     schema.path + "/prefixItems/" + std::to_string(i)));
  }
  const NodeId behind = builder_.node();  // it stands after the last item
  builder_.call(behind, json_.space(), close);
  if (most == count) {
    if (count > 0) builder_.empty(at, behind);
    return;
  }
  const RuleId item = item_rule(one, items, schema.path + "/items");
  if (count == 0) {
    at = builder_.call(at, item);
    ++count;
  }
  const RuleId next = builder_.rule(schema.path + "/items");
  builder_.call(json_.spaced(builder_.start(next), ","), item, builder_.end(next));
  builder_.empty(
      builder_.repeat(at, next, std::max<int64_t>(0, least - count), most < 0 ? -1 : most - count),
      behind);
}

}  // namespace walsh::grammar
