// JSON schemas without references and combinations: what they say of one value at once.
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

// The kinds of values; an integer is a number as well, so numbers that are none have a kind too.
enum Kind : unsigned {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFraction = 8,  // a number that is no integer
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAnyKind = 127,
};

// Of "type", a name or a list of them; all kinds without one. Throws bad_input. names_of() has a
// name of its own for numbers that are no integers, which no client can write.
unsigned kinds_of(const OrderedJson& schema, const std::string& where);
OrderedJson names_of(unsigned kinds);
unsigned kind_of(const OrderedJson& value);

// The members of the object that `schema` has as `key`, by their names: objects that keep their
// order look through all members for a name. The schema stays as it is as long as this is used.
using Members = std::unordered_map<std::string_view, const OrderedJson*>;
Members members_of(const OrderedJson& schema, const char* key);
// Adds a member that an object does not have.
void append(OrderedJson& object, const std::string& name, OrderedJson value);
// Steps that it takes to copy a value or to write it as text.
uint64_t weight_of(const OrderedJson& value);

// What the keywords of a way have looked at, for unevaluatedProperties and unevaluatedItems.
struct Evaluated {
  std::set<std::string> names, patterns;
  bool all_properties = false, all_items = false;
  size_t items = 0;  // the first ones

  void add(const Evaluated& other);
};

// One of several ways to be valid: only keywords that say something of the value itself. Beside
// those of JSON Schema, of which some are lists, so that several can hold:
//
//   pattern, format, multipleOf   lists; "-pattern", "-format", "-multipleOf": of what must not be
//   -enum                         values that are not allowed
//   patternProperties             a list of [pattern, schema]
//   others                        a list of {names, patterns, schema, exact}: what properties are
//                                 that have no such name; not exact: more than that is refused
//   has                           a list of {names, patterns, key, value}: there is such a property
//   contains                      a list of {schema, least, most, from}
//   oneForm                       values are written in one way only, so that equal ones are seen
//
// Paths are those of the schema that the client has sent.
struct FlatSchema {
  OrderedJson keywords = OrderedJson::object();
  std::string path;  // where it stands, for messages
  Evaluated evaluated = {};
};

using Ways = std::vector<FlatSchema>;

class SchemaReader {
 public:
  // `root`, whose references are pointers (with_pointers), and `budget`, from which its work is
  // taken, outlive it. `where` is the place of the root in messages.
  SchemaReader(const OrderedJson& root, std::string where, StepBudget& budget);

  // A value is valid if and only if one of these allows it; none if nothing is valid (beside what
  // is not exact, which refuses more). References are followed, allOf merged, anyOf multiplied out,
  // of oneOf each alternative without the others, of `if` both cases. Throws bad_input naming
  // keyword and path for what cannot be enforced: references that lead out of the schema, what
  // cannot be negated; limit for too many alternatives and where the budget is spent.
  Ways read(const OrderedJson& schema, const std::string& path);

  // What both of two schemas allow; either may be any schema.
  static OrderedJson both(const OrderedJson& a, const OrderedJson& b);
  // What a schema does not allow.
  static OrderedJson opposite(const OrderedJson& schema);
  // What both allow. Ways that allow nothing together are left out, as far as that is seen.
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
  // negate_schema.cpp: what none of the ways allows.
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
  const bool only_ref_;  // nothing beside a $ref counts
  size_t steps_ = 0;
};

}  // namespace walsh::grammar
