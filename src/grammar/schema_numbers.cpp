// Numbers: bounds, multiples and excluded values.
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
constexpr size_t kSafeDigits = 15;     // which a double represents exactly
constexpr int64_t kRoundedOff = 2048;  // more than the distance between doubles of 18 digits

// A bound moved away so far that no number beyond it is read as the bound itself.
Decimal beyond_rounding(const Decimal& bound, bool upper) {
  const int64_t magnitude = std::stoll(bound.digits);
  const int64_t value =
      (bound.negative ? -magnitude : magnitude) + (upper ? -kRoundedOff : kRoundedOff);
  return *parse_decimal(std::to_string(value));
}

// The range that a number format implies.
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

// If inclusive and exclusive bounds are given, the tighter one counts.
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
  const auto multiple = [&](const OrderedJson& of) {
    const double value = of.is_number() ? of.get<double>() : 0;
    if (!(value >= 1 && value <= kMaxMultiple) ||
        value != static_cast<double>(static_cast<int64_t>(value)))
      reader_.refuse(schema.path + "/multipleOf",
                     fmt::format("cannot be enforced: only 1 to {} can", kMaxMultiple));
    return static_cast<int64_t>(value);
  };
  if (schema.keywords.contains("multipleOf"))
    for (const OrderedJson& one : schema.keywords["multipleOf"])
      range.multiple = std::lcm(range.multiple, multiple(one));
  if (schema.keywords.contains("-multipleOf")) {
    const OrderedJson& list = schema.keywords["-multipleOf"];
    if (list.size() > 1)
      reader_.refuse(schema.path + "/multipleOf", "cannot be enforced where several must not hold");
    range.not_multiple = multiple(list[0]);
  }
  if (std::lcm(range.multiple, std::max<int64_t>(1, range.not_multiple)) > kMaxMultiple)
    reader_.refuse(schema.path + "/multipleOf",
                   fmt::format("cannot be enforced: together they are more than {}", kMaxMultiple));
  return range;
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
  const bool whole = (kinds & kFraction) == 0 || schema.keywords.contains("multipleOf");
  if (whole && (kinds & kInteger) == 0) return;
  // The intervals between excluded values.
  std::vector<double> excluded;
  if (schema.keywords.contains("-enum"))
    for (const OrderedJson& value : schema.keywords["-enum"])
      if (value.is_number()) excluded.push_back(value.get<double>());
  std::sort(excluded.begin(), excluded.end());
  excluded.erase(std::unique(excluded.begin(), excluded.end()), excluded.end());
  const bool any = !range.least && !range.most && excluded.empty() && range.not_multiple == 0;
  if (any && !whole && (kinds & kInteger) != 0) return builder_.call(from, json_.number(), to);
  const double low = number_value(range.least, -HUGE_VAL),
               high = number_value(range.most, HUGE_VAL);
  const auto add = [&](NumberRange piece) {
    if (whole || range.not_multiple > 0) add_integers(builder_, from, piece, to);
    if (whole) return;
    piece.uneven = (kinds & kInteger) == 0 || range.not_multiple > 0;
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
