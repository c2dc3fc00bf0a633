// Numbers between bounds: their digits are compared with those of the bounds one by one.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <tuple>

#include "grammar/json_rules.h"

namespace walsh::grammar {
namespace {

constexpr int64_t kLargest = 9'999'999'999'999'999;  // without a bound: 16 digits
constexpr size_t kMoreDigits = 6;                    // behind the point, more than the bounds have
constexpr size_t kSafeDigits = 15;                   // that a double keeps
constexpr int kMaxDigits = 18;

// A bound that is not negative.
struct Magnitude {
  int64_t whole = 0;
  std::string fraction;
  bool excluded = false;
};

bool is_zero(const Decimal& number) {
  return number.digits == "0" && number.fraction.empty();
}

Magnitude magnitude(const Decimal& number, bool excluded) {
  return {std::stoll(number.digits), number.fraction, excluded};
}

// Positive integers, whose digits are written from the left. What the digits so far are equal to is
// a prefix of a bound (tight) or lies between the bounds.
class IntegerDigits {
 public:
  IntegerDigits(GraphBuilder& builder, int64_t multiple, NodeId to)
      : builder_(builder), multiple_(multiple), to_(to) {}

  // 1 <= least <= most.
  void add(NodeId from, int64_t least, int64_t most) {
    for (int64_t first = 1; first <= most && first > 0; first *= 10) {
      const int64_t last = first > kLargest * 10 ? most : first * 10 - 1;
      if (last < least) continue;
      low_ = std::to_string(std::max(least, first));
      high_ = std::to_string(std::min(most, last));
      tight_.clear();
      builder_.empty(from, state(0, true, true, 0));
    }
  }

 private:
  NodeId state(size_t place, bool low, bool high, int64_t rest) {
    const size_t left = low_.size() - place;
    auto& known = low || high ? tight_ : free_;
    const auto [entry, added] = known.try_emplace({left, low, high, rest}, 0);
    if (!added) return entry->second;
    const NodeId node = left == 0 && rest == 0 ? to_ : builder_.node();
    entry->second = node;
    if (left == 0) return node;
    const char first = low ? low_[place] : '0', last = high ? high_[place] : '9';
    for (char digit = first; digit <= last; ++digit) {
      const NodeId next = state(place + 1, low && digit == first, high && digit == last,
                                (rest * 10 + (digit - '0')) % multiple_);
      builder_.byte(node, static_cast<uint8_t>(digit), static_cast<uint8_t>(digit), next);
    }
    return node;
  }

  using Key = std::tuple<size_t, bool, bool, int64_t>;  // digits left, tight, tight, remainder
  GraphBuilder& builder_;
  const int64_t multiple_;
  const NodeId to_;
  std::string low_, high_;
  std::map<Key, NodeId> tight_, free_;
};

void add_positive_integers(GraphBuilder& builder, NodeId from, int64_t least, int64_t most,
                           int64_t multiple, NodeId to) {
  if (least <= most) IntegerDigits(builder, multiple, to).add(from, least, most);
}

// What stands behind the digits of a whole number: nothing, or a point and digits, so that the
// fraction lies between two others, either of which may be missing.
class Fraction {
 public:
  // `whole` is the largest whole number that it stands behind: a number has at most 15 digits, so
  // that none is rounded to an excluded bound by who reads it.
  Fraction(GraphBuilder& builder, int64_t whole, const Magnitude* low, const Magnitude* high,
           NodeId to)
      : builder_(builder), low_(low), high_(high), to_(to) {
    for (const Magnitude* bound : {low, high})
      if (bound != nullptr) longest_ = std::max(longest_, bound->fraction.size());
    const size_t digits = std::to_string(whole).size();
    longest_ += digits < kSafeDigits ? std::min(kMoreDigits, kSafeDigits - digits) : 0;
  }

  void add(NodeId from) {
    const bool low = low_ != nullptr, high = high_ != nullptr;
    if (may_end(0, low, high)) builder_.empty(from, to_);
    const NodeId point = builder_.text(from, ".");
    digits(point, 0, low, high);
  }

 private:
  static char digit(const Magnitude& bound, size_t place) {
    return place < bound.fraction.size() ? bound.fraction[place] : '0';
  }
  // Whether the digits so far, with zeros behind them, lie between the bounds.
  bool may_end(size_t place, bool low, bool high) const {
    if (low && (place < low_->fraction.size() || low_->excluded)) return false;
    return !(high && place >= high_->fraction.size() && high_->excluded);
  }
  void digits(NodeId from, size_t place, bool low, bool high) {
    if (place == longest_) return;
    const char first = low ? digit(*low_, place) : '0', last = high ? digit(*high_, place) : '9';
    for (char c = first; c <= last; ++c)
      builder_.byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c),
                    state(place + 1, low && c == first, high && c == last));
  }
  NodeId state(size_t place, bool low, bool high) {
    const auto [entry, added] = known_.try_emplace({place, low, high}, 0);
    if (!added) return entry->second;
    const NodeId node = entry->second = builder_.node();
    if (may_end(place, low, high)) builder_.empty(node, to_);
    digits(node, place, low, high);
    return node;
  }

  GraphBuilder& builder_;
  const Magnitude *low_, *high_;
  const NodeId to_;
  size_t longest_ = 0;
  std::map<std::tuple<size_t, bool, bool>, NodeId> known_;
};

void add_magnitudes(GraphBuilder& builder, NodeId from, const Magnitude& low, const Magnitude* high,
                    NodeId to) {
  const int64_t last = high != nullptr ? high->whole : kLargest + 1;
  if (low.whole > last) return;
  const NodeId lowest = builder.text(from, std::to_string(low.whole));
  if (low.whole == last) return Fraction(builder, last, &low, high, to).add(lowest);
  Fraction(builder, low.whole, &low, nullptr, to).add(lowest);
  const NodeId between = builder.node();
  add_positive_integers(builder, from, low.whole + 1, last - 1, 1, between);
  Fraction(builder, high != nullptr ? last - 1 : 0, nullptr, nullptr, to).add(between);
  if (high == nullptr) return;
  Fraction(builder, last, nullptr, high, to).add(builder.text(from, std::to_string(last)));
}

// The least integer that is not below a bound, or the greatest that is not above it.
int64_t whole_bound(const Decimal& bound, bool excluded, bool upper) {
  const int64_t magnitude = std::stoll(bound.digits);
  const int64_t cut = bound.negative ? -magnitude : magnitude;
  const bool exact = bound.fraction.empty();
  if (exact) return excluded ? (upper ? cut - 1 : cut + 1) : cut;
  if (upper) return bound.negative ? cut - 1 : cut;
  return bound.negative ? cut : cut + 1;
}

}  // namespace

std::optional<Decimal> parse_decimal(const std::string& text) {
  Decimal result;
  std::string_view rest = text;
  if (rest.starts_with('-')) {
    result.negative = true;
    rest.remove_prefix(1);
  }
  long exponent = 0;
  if (const size_t mark = rest.find_first_of("eE"); mark != rest.npos) {
    exponent = std::strtol(std::string(rest.substr(mark + 1)).c_str(), nullptr, 10);
    rest = rest.substr(0, mark);
  }
  if (std::abs(exponent) > 400) return std::nullopt;
  const size_t point = std::min(rest.find('.'), rest.size());
  std::string digits(rest.substr(0, point));
  if (point < rest.size()) digits += rest.substr(point + 1);
  long place = static_cast<long>(point) + exponent;  // of the point in the digits
  if (place < 0) digits.insert(0, static_cast<size_t>(-place), '0');
  place = std::max(place, 0L);
  if (place > static_cast<long>(digits.size()))
    digits.append(static_cast<size_t>(place) - digits.size(), '0');
  result.digits = digits.substr(0, static_cast<size_t>(place));
  result.fraction = digits.substr(static_cast<size_t>(place));
  result.digits.erase(0, std::min(result.digits.find_first_not_of('0'), result.digits.size()));
  if (result.digits.empty()) result.digits = "0";
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  if (result.digits.size() > kMaxDigits || result.fraction.size() > kMaxDigits) return std::nullopt;
  if (is_zero(result)) result.negative = false;
  return result;
}

void add_integers(GraphBuilder& builder, NodeId from, const NumberRange& range, NodeId to) {
  const int64_t least =
      range.least ? whole_bound(*range.least, range.least_excluded, false) : -kLargest;
  const int64_t most = range.most ? whole_bound(*range.most, range.most_excluded, true) : kLargest;
  if (least <= 0 && most >= 0) builder.byte(from, '0', '0', to);
  if (most > 0)
    add_positive_integers(builder, from, std::max<int64_t>(1, least), most, range.multiple, to);
  if (least < 0)
    add_positive_integers(builder, builder.text(from, "-"), std::max<int64_t>(1, -most), -least,
                          range.multiple, to);
}

void add_numbers(GraphBuilder& builder, NodeId from, const NumberRange& range, NodeId to) {
  const bool below = !range.least || range.least->negative;  // some are negative
  const bool above = !range.most || !range.most->negative;
  if (above) {
    const bool bounded = range.least && !range.least->negative;
    const Magnitude low = bounded ? magnitude(*range.least, range.least_excluded) : Magnitude();
    if (range.most) {
      const Magnitude high = magnitude(*range.most, range.most_excluded);
      add_magnitudes(builder, from, low, &high, to);
    } else {
      add_magnitudes(builder, from, low, nullptr, to);
    }
  }
  if (below) {
    const bool bounded = range.most && range.most->negative;
    const Magnitude low =
        bounded ? magnitude(*range.most, range.most_excluded) : Magnitude{0, "", true};
    const NodeId minus = builder.text(from, "-");
    if (range.least) {
      const Magnitude high = magnitude(*range.least, range.least_excluded);
      add_magnitudes(builder, minus, low, &high, to);
    } else {
      add_magnitudes(builder, minus, low, nullptr, to);
    }
  }
}

}  // namespace walsh::grammar
