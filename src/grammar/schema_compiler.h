// From schemas to rules, one after the other: a rule is made when it is first named, its body
// later, so that schemas may refer to themselves and to anything.
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
  // Both outlive it.
  SchemaCompiler(GraphBuilder& builder, const OrderedJson& root)
      : SchemaCompiler(builder, root, 0) {}

  // The rule of `schema`, which stands at `path` of the root, and all that it needs.
  RuleId compile(const OrderedJson& schema, const std::string& path = "");

  // A property of an object, in the order of the schema.
  struct Property {
    std::string name;
    bool required;
    OrderedJson schema;
    std::string path;
  };
  std::vector<Property> properties_of(const FlatSchema& schema);
  // Whether nothing but strings is valid.
  bool is_text(const FlatSchema& schema) const;
  // Behind `from` a string as it is, without quotes, with `gap` and `mark` behind it. It does
  // not contain the mark; where its length or form is bounded not even the mark's first character.
  // Throws bad_input if the schema allows no such string.
  NodeId add_text(NodeId from, const FlatSchema& schema, const std::string& mark,
                  const std::string& gap);

  int64_t size_bound(const FlatSchema& schema, const char* key, int64_t otherwise) const;
  SchemaReader& reader() { return reader_; }

 private:
  // `depth`: how many others are in the middle of trying values.
  SchemaCompiler(GraphBuilder& builder, const OrderedJson& root, int depth)
      : builder_(builder),
        json_(builder),
        reader_(root, builder.where(), builder.budget()),
        root_(root),
        depth_(depth) {}

  struct Pending {
    OrderedJson schema;
    std::string path;
    RuleId rule;
  };
  // What is said of a string: its length (most < 0: any) and the pattern it has to match.
  struct StringLimits {
    int64_t least, most;
    std::optional<PatternAutomaton> pattern;
  };

  RuleId rule_of(const OrderedJson& schema, const std::string& path);
  void add_flat(NodeId from, const FlatSchema& schema, NodeId to);
  unsigned meant_kinds(const FlatSchema& schema) const;
  OrderedJson values_of(const FlatSchema& schema);
  StringLimits string_limits(const FlatSchema& schema) const;
  void add_string(NodeId from, const FlatSchema& schema, NodeId to);
  void add_number(NodeId from, const FlatSchema& schema, bool integer, NodeId to);
  void add_array(NodeId from, const FlatSchema& schema, NodeId to);
  // schema_objects.cpp
  void add_object(NodeId from, const FlatSchema& schema, NodeId to);
  void add_patterns(const FlatSchema& schema, const OrderedJson& names,
                    std::vector<OrderedJson>& schemas);
  NodeId other_key(NodeId from, const FlatSchema& schema, const std::vector<std::string>& names);

  // Which values are generated for the schema if they are written shortest.
  std::vector<bool> generates(const OrderedJson& schema, const OrderedJson& values,
                              const std::string& path);

  GraphBuilder& builder_;
  JsonRules json_;
  SchemaReader reader_;
  const OrderedJson& root_;
  std::map<std::string, RuleId> known_;  // by the text of the schema
  std::deque<Pending> pending_;
  const int depth_;
};

}  // namespace walsh::grammar
