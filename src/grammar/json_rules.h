// Makes the grammar rules of JSON texts. Between the members of objects and arrays there is
// nothing, a space, or a line end with up to 20 spaces or tabs, so that no model can emit white
// space for ever.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/graph.h"

namespace walsh::grammar {

// Adds rules to the builder when they are first asked for.
class JsonRules {
 public:
  explicit JsonRules(GraphBuilder& builder) : builder_(builder) {}

  RuleId value();   // it matches any value
  RuleId object();  // it matches any object
  RuleId array();
  RuleId string();
  RuleId number();
  RuleId space();
  // Returns the rule of one character of a string, in any of its spellings.
  RuleId character();
  // Returns the rule of the same in one spelling, without \u and unnecessary backslashes.
  RuleId letter();

  // These add a path from `from` and return its last node.
  NodeId spaced(NodeId from, const char* text);  // it adds `text`, then space
  // Adds a string that equals none of `names`, written without \u.
  NodeId other_string(NodeId from, const std::vector<std::string>& names);

  // Adds an edge for one character of `set` in a string, in its shortest spelling.
  void one_of(NodeId from, const CodeSet& set, NodeId to);

 private:
  // Makes a rule first and its body after it, so that the body may refer to the rule.
  template <typename Body>
  RuleId once(std::optional<RuleId>& known, const char* name, Body body);
  void members(NodeId from, NodeId to, RuleId member);

  GraphBuilder& builder_;
  std::optional<RuleId> value_, object_, array_, string_, number_, space_, character_, letter_;
  std::map<std::string, RuleId> sets_;  // sets of characters have these rules
};

// Returns a text as it is written between the quotes of a JSON string, in the shortest spelling.
std::string json_letters(std::string_view text);

// Holds a decimal number without an exponent.
struct Decimal {
  bool negative = false;
  // The digits stand before the point, without leading zeros; there is at least one.
  std::string digits;
  std::string fraction;  // it has no trailing zeros
};
// Parses a JSON number. Returns nothing if it has more than 18 digits before or after the point.
std::optional<Decimal> parse_decimal(const std::string& text);

// Returns the nearest double, or `otherwise` if there is no number.
double number_value(const std::optional<Decimal>& number, double otherwise);

struct NumberRange {
  std::optional<Decimal> least, most;
  bool least_excluded = false, most_excluded = false;
  int64_t multiple = 1, not_multiple = 0;  // only integers have them; 0 means no condition
  bool uneven = false;                     // only other numbers may have it: they are not integral
  // `multiple` is in units of 10^-places, and numbers have at most this many decimal places.
  int places = 0;
  bool shortest = false;  // multiples have no trailing zeros, so that each has one spelling
};
// These add the numbers of a range. Integers have at most 16 digits on a side without a bound;
// other numbers have no exponent and at most 6 digits more after the point than the bounds.
void add_integers(GraphBuilder& builder, NodeId from, const NumberRange& range, NodeId to);
void add_numbers(GraphBuilder& builder, NodeId from, const NumberRange& range, NodeId to);
// Adds multiples of `range.multiple` * 10^-places with at most 15 digits, or as many as a bound
// has. Returns false if bounds and decimal places together have too many digits.
bool add_multiples(GraphBuilder& builder, NodeId from, const NumberRange& range, NodeId to);

}  // namespace walsh::grammar
