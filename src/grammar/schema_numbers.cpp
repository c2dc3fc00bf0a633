// Compiles numbers, with bounds, multiples and excluded values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "grammar/schema_compiler.h"

namespace walsh::grammar {
namespace {

constexpr int64_t kMaxMultiple = 1000;
constexpr size_t kMostPlaces = 15;
constexpr const char* kTooManyDigits = "its digits, or those of several together, are above 1000";
constexpr size_t kSafeDigits = 15;     // a double represents this many digits exactly
constexpr int64_t kRoundedOff = 2048;  // doubles of 18 digits are less far apart

// Moves a bound away so far that no number beyond it is read as the bound itself.
Decimal beyond_rounding(const Decimal& bound, bool upper) {
  const int64_t magnitude = std::stoll(bound.digits);
  const int64_t value =
      (bound.negative ? -magnitude : magnitude) + (upper ? -kRoundedOff : kRoundedOff);
  return *parse_decimal(std::to_string(value));
}

// Returns the range that a number format implies.
std::optional<std::pair<double, double>> range_of_format(const std::string& format) {
  static const std::map<std::string, int> kBits = {{"int8", 8},  {"int16", 16},  {"int32", 32},
                                                   {"uint8", 8}, {"uint16", 16}, {"uint32", 32}};
  const auto bits = kBits.find(format);
  if (bits != kBits.end()) {
    if (format.starts_with('u')) return std::pair(0.0, std::ldexp(1, bits->second) - 1);
    return std::pair(-std::ldexp(1, bits->second - 1), std::ldexp(1, bits->second - 1) - 1);
  }
  if (format == "uint64" || format == "uint") return std::pair(0.0, HUGE_VAL);
  return std::nullopt;
}

}  // namespace

// Returns a bound and whether it is excluded. If inclusive and exclusive bounds are given, the
// tighter one counts.
std::pair<std::optional<Decimal>, bool> SchemaCompiler::number_bound(const FlatSchema& schema,
                                                                     bool upper) const {
  const auto bound = [&](const char* key) -> std::optional<Decimal> {
    const auto found = schema.keywords.find(key);
    if (found == schema.keywords.end()) return std::nullopt;
    const auto decimal = parse_decimal(found->dump());
    if (!decimal)
      reader_.refuse(schema.path + "/" + key, "cannot be enforced: it has more than 18 digits");
    return decimal;
  };
  const char* key = upper ? "maximum" : "minimum";
  const char* excluded_key = upper ? "exclusiveMaximum" : "exclusiveMinimum";
  std::optional<Decimal> included = bound(key), excluded = bound(excluded_key);
  bool exclude = excluded.has_value();
  if (included && excluded) {
    const double a = schema.keywords[key].get<double>();
    const double b = schema.keywords[excluded_key].get<double>();
    exclude = upper ? b <= a : b >= a;
  }
  if (!exclude) return {included, false};
  if (excluded->digits.size() > kSafeDigits) return {beyond_rounding(*excluded, upper), false};
  return {excluded, true};
}

NumberRange SchemaCompiler::number_range(const FlatSchema& schema) const {
  NumberRange range;
  std::tie(range.least, range.least_excluded) = number_bound(schema, false);
  std::tie(range.most, range.most_excluded) = number_bound(schema, true);
  range.shortest = schema.keywords.contains("oneForm");
  const auto refuse = [&](const char* reason) {
    reader_.refuse(schema.path + "/multipleOf", fmt::format("cannot be enforced: {}", reason));
  };
  // Returns a multiple and the place of its last digit after the point.
  const auto parsed = [&](const OrderedJson& of) {
    const auto decimal = of.is_number() ? parse_decimal(of.dump()) : std::nullopt;
    if (!decimal || decimal->negative || decimal->fraction.size() > kMostPlaces ||
        number_value(decimal, 0) == 0)
      refuse("a number above 0 with at most 15 digits after the point is expected");
    const std::string digits = decimal->digits + decimal->fraction;
    const bool short_enough = digits.find_last_not_of('0') - digits.find_first_not_of('0') < 9;
    const double value = short_enough ? std::strtod(digits.c_str(), nullptr) : 1e18;
    if (value > static_cast<double>(kMaxMultiple)) refuse(kTooManyDigits);
    return std::pair(static_cast<int64_t>(value), static_cast<int>(decimal->fraction.size()));
  };
  if (schema.keywords.contains("multipleOf")) {
    for (const OrderedJson& one : schema.keywords["multipleOf"]) {
      auto [multiple, places] = parsed(one);
      if (&one == &schema.keywords["multipleOf"].front()) {
        range.multiple = multiple;
        range.places = places;
      }
      for (; places < range.places && multiple <= kMaxMultiple; ++places)
        multiple *= 10;
      for (; range.places < places && range.multiple <= kMaxMultiple; ++range.places)
        range.multiple *= 10;
      range.multiple = std::lcm(range.multiple, multiple);
      if (range.multiple > kMaxMultiple) refuse(kTooManyDigits);
    }
  }
  if (schema.keywords.contains("-multipleOf")) {
    const OrderedJson& list = schema.keywords["-multipleOf"];
    if (list.size() > 1) refuse("several must not hold");
    const auto [multiple, places] = parsed(list[0]);
    if (places > 0 || range.places > 0) refuse("it must not hold, and has digits after the point");
    range.not_multiple = multiple;
  }
  if (std::lcm(range.multiple, std::max<int64_t>(1, range.not_multiple)) > kMaxMultiple)
    refuse(kTooManyDigits);
  return range;
}

// Turns multiples into integers if fractions are not allowed, and excludes integers if these are
// not allowed.
void SchemaCompiler::choose_places(const FlatSchema& schema, unsigned kinds,
                                   NumberRange& range) const {
  if (range.places == 0) return;
  int64_t power = 1;
  for (int i = 0; i < range.places; ++i)
    power *= 10;
  if ((kinds & kFraction) == 0) {
    range.multiple /= std::gcd(range.multiple, power);
    range.places = 0;
  } else if ((kinds & kInteger) == 0) {
    if (std::lcm(range.multiple, power) > kMaxMultiple)
      reader_.refuse(schema.path + "/multipleOf", "cannot be enforced where integers are left out");
    range.not_multiple = power;
  }
}

void SchemaCompiler::add_number(NodeId from, const FlatSchema& schema, unsigned kinds, NodeId to) {
  FlatSchema bounded = schema;
  if (schema.keywords.contains("format")) {
    for (const OrderedJson& format : schema.keywords["format"]) {
      const auto range = range_of_format(format.get<std::string>());
      if (!range) continue;
      OrderedJson& least = bounded.keywords["minimum"];
      if (!least.is_number() || least.get<double>() < range->first) least = range->first;
      OrderedJson& most = bounded.keywords["maximum"];
      if (range->second == HUGE_VAL) {
        if (most.is_null()) bounded.keywords.erase("maximum");
      } else if (!most.is_number() || most.get<double>() > range->second) {
        most = range->second;
      }
    }
  }
  NumberRange range = number_range(bounded);
  choose_places(schema, kinds, range);
  const bool multiples = range.places > 0;
  const bool whole =
      (kinds & kFraction) == 0 || (schema.keywords.contains("multipleOf") && !multiples);
  if (whole && (kinds & kInteger) == 0) return;
  // Numbers lie in the intervals between excluded values.
  std::vector<double> excluded;
  if (schema.keywords.contains("-enum"))
    for (const OrderedJson& value : schema.keywords["-enum"])
      if (value.is_number()) excluded.push_back(value.get<double>());
  std::sort(excluded.begin(), excluded.end());
  excluded.erase(std::unique(excluded.begin(), excluded.end()), excluded.end());
  const bool any = !range.least && !range.most && excluded.empty() && range.not_multiple == 0;
  if (any && !whole && !multiples && !range.shortest && (kinds & kInteger) != 0)
    return builder_.call(from, json_.number(), to);
  const double low = number_value(range.least, -HUGE_VAL),
               high = number_value(range.most, HUGE_VAL);
  const auto add = [&](NumberRange piece) {
    if (multiples) {
      if (!add_multiples(builder_, from, piece, to))
        reader_.refuse(schema.path + "/multipleOf",
                       "cannot be enforced: a bound has more than 18 digits");
      return;
    }
    const bool apart = range.not_multiple > 0 || (range.shortest && (kinds & kInteger) != 0);
    if (whole || apart) add_integers(builder_, from, piece, to);
    if (whole) return;
    piece.uneven = (kinds & kInteger) == 0 || apart;
    add_numbers(builder_, from, piece, to);
  };
  for (const double value : excluded) {
    if (value < low || value > high) continue;
    const auto decimal = parse_decimal(OrderedJson(value).dump());
    if (!decimal || decimal->digits.size() > kSafeDigits)
      reader_.refuse(schema.path + "/not", "cannot be enforced: a number has too many digits");
    NumberRange piece = range;
    piece.most = decimal;
    piece.most_excluded = true;
    add(piece);
    range.least = decimal;
    range.least_excluded = true;
  }
  add(range);
}

}  // namespace walsh::grammar
