// From schemas to rules, one after the other: a rule is made when it is first named, its body
// later, so that schemas may refer to themselves and to anything.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "grammar/flat_schema.h"
#include "grammar/graph.h"
#include "grammar/json_rules.h"

namespace walsh::grammar {

class SchemaCompiler {
 public:
  // Both outlive it.
  SchemaCompiler(GraphBuilder& builder, const OrderedJson& root)
      : SchemaCompiler(builder, root, nullptr) {}

  // The rule of `schema` and all that it needs.
  RuleId compile(const OrderedJson& schema);

 private:
  // `trials` counts what generates() was asked for, all levels together.
  SchemaCompiler(GraphBuilder& builder, const OrderedJson& root, int* trials)
      : builder_(builder),
        json_(builder),
        reader_(root, builder.where()),
        root_(root),
        trials_(trials == nullptr ? own_trials_ : *trials) {}

  struct Pending {
    OrderedJson schema;
    std::string path;
    RuleId rule;
  };
  // A property of an object, in the order of the schema.
  struct Property {
    std::string name;
    bool required;
    RuleId value;
  };

  RuleId rule_of(const OrderedJson& schema, const std::string& path);
  void add_flat(NodeId from, const FlatSchema& schema, NodeId to);
  void add_values(NodeId from, const FlatSchema& schema, NodeId to);
  void add_string(NodeId from, const FlatSchema& schema, NodeId to);
  void add_number(NodeId from, const FlatSchema& schema, bool integer, NodeId to);
  void add_array(NodeId from, const FlatSchema& schema, NodeId to);
  // schema_objects.cpp
  void add_object(NodeId from, const FlatSchema& schema, NodeId to);
  std::vector<Property> properties_of(const FlatSchema& schema);
  OrderedJson pattern_schemas(const FlatSchema& schema, const std::string& name);
  NodeId other_key(NodeId from, const FlatSchema& schema, const std::vector<std::string>& names);

  // Which values are generated for the schema if they are written shortest.
  std::vector<bool> generates(const OrderedJson& schema, const OrderedJson& values,
                              const std::string& path);
  int64_t size_bound(const FlatSchema& schema, const char* key, int64_t otherwise) const;

  GraphBuilder& builder_;
  JsonRules json_;
  SchemaReader reader_;
  const OrderedJson& root_;
  std::map<std::string, RuleId> known_;  // by the text of the schema
  std::deque<Pending> pending_;
  int own_trials_ = 0;
  int& trials_;
};

}  // namespace walsh::grammar
