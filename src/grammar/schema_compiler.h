// Compiles schemas to grammar rules, one after the other. A rule is made when it is first referred
// to and gets its body later, so that schemas may refer to themselves and to anything else.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/flat_schema.h"
#include "grammar/graph.h"
#include "grammar/json_rules.h"
#include "grammar/pattern_automaton.h"

namespace walsh::grammar {

class SchemaCompiler {
 public:
  // Both arguments must outlive this; the references in `root` must be pointers (with_pointers).
  SchemaCompiler(GraphBuilder& builder, const OrderedJson& root)
      : SchemaCompiler(builder, root, 0) {}

  // Returns the rule of `schema`, which stands at `path` in the root, with all rules that it needs.
  RuleId compile(const OrderedJson& schema, const std::string& path = "");

  // Describes a property of an object; they are in the order of the schema.
  struct Property {
    std::string name;
    bool required;
    OrderedJson schema;
    std::string path;
  };
  std::vector<Property> properties_of(const FlatSchema& schema);
  // Returns whether only strings are valid.
  bool is_text(const FlatSchema& schema) const;
  // Adds an unquoted string at `from`, followed by `gap` and `mark`. The string does not contain
  // the mark. If its length or form is limited, it does not even contain the mark's first
  // character. Throws bad_input if the schema allows no such string.
  NodeId add_text(NodeId from, const FlatSchema& schema, const std::string& mark,
                  const std::string& gap);

  int64_t size_bound(const FlatSchema& schema, const char* key, int64_t otherwise) const;
  // Returns `most`, or a million if that is less and not below `least`: no answer is longer.
  static int64_t countable(int64_t least, int64_t most);
  SchemaReader& reader() { return reader_; }

 private:
  // `depth` says how many compilers are in the middle of trying values.
  SchemaCompiler(GraphBuilder& builder, const OrderedJson& root, int depth)
      : builder_(builder),
        json_(builder),
        reader_(root, builder.where(), builder.budget()),
        root_(root),
        depth_(depth) {}

  // These say how values are written that are compared with others (keywords oneForm and
  // sortedNames).
  struct OneForm {
    std::string list;     // messages name this path of "uniqueItems"
    bool sorted = false;  // the properties of objects are in the order of their names
  };
  struct Pending {
    OrderedJson schema;
    std::string path;
    RuleId rule;
    std::optional<OneForm> one_form;
  };
  // A string has these constraints: its length, where a negative `most` means no upper bound, and a
  // pattern to match.
  struct StringLimits {
    int64_t least, most;
    std::optional<PatternAutomaton> pattern;
  };

  RuleId compile(const Ways& ways);
  void make_pending();
  void add_ways(RuleId rule, const Ways& ways);
  RuleId rule_of(const OrderedJson& schema, const std::string& path,
                 const std::optional<OneForm>& form = std::nullopt);
  void add_flat(NodeId from, const FlatSchema& schema, NodeId to);
  unsigned meant_kinds(const FlatSchema& schema) const;
  OrderedJson values_of(const FlatSchema& schema);
  StringLimits string_limits(const FlatSchema& schema) const;
  void add_string(NodeId from, const FlatSchema& schema, NodeId to);
  void add_json_string(NodeId from, const FlatSchema& schema, NodeId to);
  std::vector<std::string> excluded_strings(const FlatSchema& schema) const;
  // These are in schema_numbers.cpp.
  std::pair<std::optional<Decimal>, bool> number_bound(const FlatSchema& schema, bool upper) const;
  NumberRange number_range(const FlatSchema& schema) const;
  void choose_places(const FlatSchema& schema, unsigned kinds, NumberRange& range) const;
  void add_number(NodeId from, const FlatSchema& schema, unsigned kinds, NodeId to);
  // These are in schema_arrays.cpp.
  std::optional<OrderedJson> all_values(const OrderedJson& schema, const std::string& path);
  void add_array(NodeId from, const FlatSchema& schema, NodeId to);
  void add_any_order(NodeId from, const FlatSchema& schema, const OrderedJson& values,
                     int64_t least, int64_t most, NodeId to);
  RuleId item_rule(const FlatSchema& schema, const OrderedJson& item, const std::string& path);
  // Returns the rule of a value inside of one that `schema` describes.
  RuleId inner_rule(const FlatSchema& schema, const OrderedJson& inner, const std::string& path);
  void write_in_one_form(FlatSchema& way, const OneForm& form) const;
  NodeId open_list(NodeId from, const FlatSchema& schema);
  void add_containing(NodeId from, const FlatSchema& schema, int64_t least, int64_t most,
                      NodeId to);
  // Properties that are not named are grouped by the patterns that their keys match. These are in
  // schema_objects.cpp.
  struct OtherKeys {
    Ways keys;
    OrderedJson schema;
  };
  void add_object(NodeId from, const FlatSchema& schema, NodeId to);
  void add_members(NodeId from, const FlatSchema& schema, NodeId to);
  const PatternAutomaton& exact_pattern(const std::string& pattern, const std::string& path);
  OrderedJson schema_of_name(const FlatSchema& schema, const std::string& name);
  std::vector<FlatSchema> with_witnesses(const FlatSchema& schema);
  std::vector<OtherKeys> other_keys(const FlatSchema& schema, bool described);

  // Says for each value whether its shortest spelling is generated for one of the alternatives.
  std::vector<bool> generates(const Ways& ways, const OrderedJson& values, const std::string& path);

  GraphBuilder& builder_;
  JsonRules json_;
  SchemaReader reader_;
  const OrderedJson& root_;
  std::map<std::string, RuleId> known_;  // their keys are the schemas' texts
  std::deque<Pending> pending_;
  // These are conjunctions of patterns, by their texts.
  std::map<std::string, PatternAutomaton> patterns_;
  const int depth_;
};

}  // namespace walsh::grammar
