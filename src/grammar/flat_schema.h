// JSON schemas without references and combinations: what they say of one value at once.
#pragma once

#include <optional>
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
  kFraction = 8,  // a number that need not be an integer
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAnyKind = 127,
};

// Of "type", a name or a list of them; all kinds without one. Throws bad_input.
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

// One of several ways to be valid: only keywords that say something of the value itself. Paths are
// those of the schema that the client has sent.
struct FlatSchema {
  OrderedJson keywords = OrderedJson::object();
  std::string path;  // where it stands, for messages
};

class SchemaReader {
 public:
  // `root` and `budget`, from which its work is taken, outlive it. `where` is the place of the root
  // in messages.
  SchemaReader(const OrderedJson& root, std::string where, StepBudget& budget)
      : root_(root), where_(std::move(where)), budget_(budget) {}

  // A value is valid if one of these allows it; none if nothing is valid. References are followed,
  // allOf merged, anyOf and oneOf multiplied out. Throws bad_input naming keyword and path for what
  // cannot be enforced: a oneOf whose alternatives may hold together, references that lead out of
  // the schema, keywords that need to look at the whole value; limit for too many alternatives and
  // where the budget is spent.
  std::vector<FlatSchema> read(const OrderedJson& schema, const std::string& path);

  // What both of two schemas allow; either may be any schema.
  static OrderedJson both(const OrderedJson& a, const OrderedJson& b);

  [[noreturn]] void refuse(const std::string& path, const std::string& reason) const;
  const std::string& where() const { return where_; }

 private:
  std::vector<FlatSchema> read(const OrderedJson& schema, const std::string& path, int depth);
  const OrderedJson& follow(const std::string& reference, const std::string& path) const;
  void check_keywords(const OrderedJson& schema, const std::string& path) const;
  std::vector<FlatSchema> multiply(const std::vector<FlatSchema>& a,
                                   const std::vector<FlatSchema>& b) const;
  std::optional<OrderedJson> merge(const OrderedJson& a, const OrderedJson& b,
                                   const std::string& path) const;
  std::vector<FlatSchema> alternatives(const std::vector<FlatSchema>& ways, const OrderedJson& list,
                                       const std::string& path, bool one, int depth);
  bool disjoint(const FlatSchema& a, const FlatSchema& b, int depth);
  void spend(uint64_t steps, const std::string& path) const { budget_.spend(steps, where_ + path); }
  bool disjoint_objects(const FlatSchema& a, const FlatSchema& b, int depth);

  const OrderedJson& root_;
  const std::string where_;
  StepBudget& budget_;
  size_t steps_ = 0;
};

}  // namespace walsh::grammar
