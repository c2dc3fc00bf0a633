// Enforces JSON schemas of objects that are written between tags instead of as JSON, as some models
// write the arguments of calls. Strings appear unquoted, other values as JSON.
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
  RuleId value;  // it includes the mark after the value
};

// Adds rules for the values of the members that `schema` names or requires. An object is valid if
// it has the members of one of the returned lists, in their order. A value is followed by `gap`,
// which is optional after free text, and `mark`, which no text contains. Throws as add_json_schema,
// and bad_input for constraints that such an object cannot express, which are those on the whole
// value or on the number of members.
std::vector<std::vector<TaggedMember>> add_tagged_object(GraphBuilder& builder,
                                                         const OrderedJson& schema,
                                                         const std::string& mark,
                                                         const std::string& gap);

// Returns the names of the members whose values are always strings, as far as the schema can be
// read. The work is taken from the builder's budget.
std::set<std::string> text_members(const GraphBuilder& builder, const OrderedJson& schema);

}  // namespace walsh::grammar
