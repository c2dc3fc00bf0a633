// Reduces JSON schemas to alternatives without references and combinations.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/step_budget.h"
#include "io/json.h"

namespace walsh::grammar {

// These are the kinds of JSON values. Integers are numbers as well, so numbers that are not
// integral have a kind of their own.
enum Kind : unsigned {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFraction = 8,  // it is a number that is not integral
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAnyKind = 127,
};

// Returns the kinds that "type" (a name or a list of names) allows, or all kinds without it. Throws
// bad_input. names_of() uses a private name for kFraction, which no client can send.
unsigned kinds_of(const OrderedJson& schema, const std::string& where);
OrderedJson names_of(unsigned kinds);
unsigned kind_of(const OrderedJson& value);

// Indexes the members under `key` in `schema` by name, because objects that keep their order search
// linearly. `schema` must not change while the index is used.
using Members = std::unordered_map<std::string_view, const OrderedJson*>;
Members members_of(const OrderedJson& schema, const char* key);
// Adds a member that the object does not have yet.
void append(OrderedJson& object, const std::string& name, OrderedJson value);
// Returns how many steps copying or printing a value costs.
uint64_t weight_of(const OrderedJson& value);

// Says what the keywords of an alternative have evaluated, for unevaluatedProperties and
// unevaluatedItems.
struct Evaluated {
  std::set<std::string> names, patterns;
  bool all_properties = false, all_items = false;
  size_t items = 0;  // the first `items` ones are evaluated

  void add(const Evaluated& other);
};

// A FlatSchema is one of several alternative ways to be valid and has only keywords that constrain
// the value itself. Some keywords of JSON Schema become lists, so that several of them can hold,
// and some are added:
//
//   pattern, format, multipleOf   lists; "-pattern", "-format", "-multipleOf": must not match
//   -enum                         values that are not allowed
//   patternProperties             a list of [pattern, schema]
//   others                        a list of {names, patterns, schema, exact}: what properties
//                                 with other names are; not exact: refuses more than was asked
//   has                           a list of {names, patterns, key, value}: such a property exists
//   contains                      a list of {schema, least, most, from}
//   oneForm                       values have only one spelling, so that equal ones are found: the
//                                 path of the "uniqueItems" that asks for it
//   sortedNames                   with oneForm: properties come in the order of their names
//
// Paths are those in the schema that the client sent.
struct FlatSchema {
  OrderedJson keywords = OrderedJson::object();
  std::string path;  // messages name this place in the client's schema
  Evaluated evaluated = {};
};

using Ways = std::vector<FlatSchema>;

class SchemaReader {
 public:
  // `root`, whose references must be pointers (with_pointers), and `budget`, which pays for the
  // work, must outlive this. `where` names the root in messages.
  SchemaReader(const OrderedJson& root, std::string where, StepBudget& budget);

  // A value is valid if and only if one of the returned alternatives allows it (except for parts
  // that are not exact, which refuse more); an empty list means that nothing is valid. References
  // are followed, allOf is merged, anyOf multiplied out, oneOf becomes each alternative without the
  // others, and `if` both cases. Throws bad_input naming keyword and path for what cannot be
  // enforced, such as references out of the schema and schemas that cannot be negated. Throws limit
  // for too many alternatives and when the budget is spent.
  Ways read(const OrderedJson& schema, const std::string& path);

  // Returns the conjunction of two schemas, each of which may be any schema.
  static OrderedJson both(const OrderedJson& a, const OrderedJson& b);
  // Returns the negation of a schema.
  static OrderedJson opposite(const OrderedJson& schema);
  // Returns the conjunction of two lists of alternatives. Pairs that are seen to allow nothing are
  // left out.
  Ways multiply(const Ways& a, const Ways& b) const;

  [[noreturn]] void refuse(const std::string& path, const std::string& reason) const;
  const std::string& where() const { return where_; }

 private:
  Ways read(const OrderedJson& schema, const std::string& path, int depth);
  Ways read_reference(const OrderedJson& schema, const char* key, const std::string& path,
                      int depth);
  const OrderedJson& follow(const std::string& reference, const std::string& path) const;
  void check_keywords(const OrderedJson& schema, const std::string& path) const;
  FlatSchema own_keywords(const OrderedJson& schema, const std::string& path) const;
  OrderedJson own_content(const OrderedJson& schema, const std::string& path) const;
  void own_numbers(const OrderedJson& schema, const std::string& path, OrderedJson& own) const;
  void own_arrays(const OrderedJson& schema, const std::string& path, FlatSchema& own) const;
  void own_objects(const OrderedJson& schema, FlatSchema& own) const;
  std::optional<OrderedJson> merge(const OrderedJson& a, const OrderedJson& b,
                                   const std::string& path) const;
  bool impossible(const OrderedJson& keywords, const std::string& path) const;
  bool requires_refused(const OrderedJson& required, const OrderedJson& keywords) const;
  Ways any_of(const Ways& ways, const OrderedJson& list, const std::string& path, int depth);
  Ways one_of(const Ways& ways, const OrderedJson& list, const std::string& path, int depth);
  Ways conditions(Ways ways, const OrderedJson& schema, const std::string& path, int depth);
  Ways dependencies(Ways ways, const OrderedJson& schema, const std::string& path, int depth);
  void add_unevaluated(Ways& ways, const OrderedJson& schema) const;
  // This returns ways that allow all values which none of the alternatives allows
  // (negate_schema.cpp).
  Ways negate(const Ways& ways) const;
  Ways negate(const FlatSchema& way) const;
  void negate_objects(const FlatSchema& way, Ways& result) const;
  void negate_arrays(const FlatSchema& way, Ways& result) const;
  bool disjoint(const FlatSchema& a, const FlatSchema& b, int depth);
  bool disjoint_objects(const FlatSchema& a, const FlatSchema& b, int depth);
  void append_ways(Ways& all, Ways more, const std::string& path) const;
  void spend(uint64_t steps, const std::string& path) const { budget_.spend(steps, where_ + path); }

  const OrderedJson& root_;
  const std::string where_;
  StepBudget& budget_;
  const bool only_ref_;  // keywords beside a $ref are ignored
  size_t steps_ = 0;
};

}  // namespace walsh::grammar
