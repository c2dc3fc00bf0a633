// The rules of JSON texts, of which schemas are made. Between the members of objects and arrays
// there is nothing, a space, or a line end and up to 20 spaces or tabs, so that no model can go on
// with white space for ever.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/graph.h"

namespace walsh::grammar {

// Rules are added to the builder when they are first asked for.
class JsonRules {
 public:
  explicit JsonRules(GraphBuilder& builder) : builder_(builder) {}

  RuleId value();   // any value
  RuleId object();  // any object
  RuleId array();
  RuleId string();
  RuleId number();
  RuleId space();
  // One character of a string with all its ways to be written.
  RuleId character();
  // The same written in one way only: without \u and needless backslashes.
  RuleId letter();

  // These add a path behind `from` and return its last node.
  NodeId spaced(NodeId from, const char* text);  // `text`, then space
  // A string that has none of these values, written without \u.
  NodeId other_string(NodeId from, const std::vector<std::string>& names);

  // A path for one character of a string out of a set, written in the shortest way.
  void one_of(NodeId from, const CodeSet& set, NodeId to);

 private:
  // Makes a rule, then its body: it may call itself.
  template <typename Body>
  RuleId once(std::optional<RuleId>& known, const char* name, Body body);
  void members(NodeId from, NodeId to, RuleId member);

  GraphBuilder& builder_;
  std::optional<RuleId> value_, object_, array_, string_, number_, space_, character_, letter_;
  std::map<std::string, RuleId> sets_;  // characters of other languages
};

// A text as it stands between the quotes of a JSON string, in the shortest way.
std::string json_letters(std::string_view text);

// A number of plain digits.
struct Decimal {
  bool negative = false;
  std::string digits;    // in front of the point, without leading zeros; never empty
  std::string fraction;  // without trailing zeros
};
// From the text of a JSON number; nothing if it has more than 18 digits on a side.
std::optional<Decimal> parse_decimal(const std::string& text);

// Its nearest double, or `otherwise` if there is none.
double number_value(const std::optional<Decimal>& number, double otherwise);

struct NumberRange {
  std::optional<Decimal> least, most;
  bool least_excluded = false, most_excluded = false;
  int64_t multiple = 1, not_multiple = 0;  // integers only; 0: any
  bool uneven = false;                     // others only: no integers
  // Multiples are of 10^-places, and have no more digits behind the point.
  int places = 0;
  bool shortest = false;  // of multiples: without zeros at the end, so that each has one form
};
// The numbers of a range: integers of at most 16 digits on a side without a bound, others with at
// most 6 digits behind the point more than the bounds have and without an exponent.
void add_integers(GraphBuilder& builder, NodeId from, const NumberRange& range, NodeId to);
void add_numbers(GraphBuilder& builder, NodeId from, const NumberRange& range, NodeId to);
// Multiples of `range.multiple` * 10^-places with at most 15 digits, or as many as a bound has.
// False if bounds and places together have too many digits.
bool add_multiples(GraphBuilder& builder, NodeId from, const NumberRange& range, NodeId to);

}  // namespace walsh::grammar
