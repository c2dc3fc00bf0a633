// JSON schemas of objects that are not written as JSON: each member stands between marks of its
// own, as some models write the arguments of calls; texts as they are, other values as JSON.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "grammar/graph.h"
#include "io/json.h"

namespace walsh::grammar {

struct TaggedMember {
  std::string name;
  bool required;
  RuleId value;  // with the mark behind it
};

// Adds the rules of the values of the members that `schema` names or requires. An object is valid
// if it has the members of one of these lists, in their order. Behind a value stand `gap` (of a
// free text perhaps not) and `mark`, which no text contains. Throws as add_json_schema, and
// bad_input for what cannot be said of such an object: values of the whole, bounds of the number of
// its members.
std::vector<std::vector<TaggedMember>> add_tagged_object(GraphBuilder& builder,
                                                         const OrderedJson& schema,
                                                         const std::string& mark,
                                                         const std::string& gap);

// Names of the members whose values are texts and nothing else, as far as the schema can be read.
// The work counts as the builder's.
std::set<std::string> text_members(const GraphBuilder& builder, const OrderedJson& schema);

}  // namespace walsh::grammar
