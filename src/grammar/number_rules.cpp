// Adds rules for numbers between bounds: digits are compared with those of the bounds one by one.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <numeric>
#include <tuple>

#include "grammar/json_rules.h"

namespace walsh::grammar {
namespace {

// Bounds are at most this by default, with 16 digits.
constexpr int64_t kLargest = 9'999'999'999'999'999;
// Behind the point there may be this many more digits than bounds have.
constexpr size_t kMoreDigits = 6;
constexpr size_t kSafeDigits = 15;  // a double represents this many digits exactly
constexpr int kMaxDigits = 18;

// Holds a non-negative bound.
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

// Writes positive integers from the left. The digits so far are a prefix of a bound (tight) or lie
// between the bounds.
class IntegerDigits {
 public:
  IntegerDigits(GraphBuilder& builder, const NumberRange& range, NodeId to)
      : builder_(builder),
        range_(range),
        modulus_(std::lcm(range.multiple, std::max<int64_t>(1, range.not_multiple))),
        to_(to) {}

  // Requires 1 <= least <= most.
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
    const NodeId node = left == 0 && may_end(rest) ? to_ : builder_.node();
    entry->second = node;
    if (left == 0) return node;
    const char first = low ? low_[place] : '0', last = high ? high_[place] : '9';
    for (char digit = first; digit <= last; ++digit) {
      const NodeId next = state(place + 1, low && digit == first, high && digit == last,
                                (rest * 10 + (digit - '0')) % modulus_);
      builder_.byte(node, static_cast<uint8_t>(digit), static_cast<uint8_t>(digit), next);
    }
    return node;
  }

  bool may_end(int64_t rest) const {
    return rest % range_.multiple == 0 &&
           (range_.not_multiple == 0 || rest % range_.not_multiple != 0);
  }

  // A key says how many digits are left, whether they are tight below and above, and the remainder.
  using Key = std::tuple<size_t, bool, bool, int64_t>;
  GraphBuilder& builder_;
  const NumberRange& range_;
  const int64_t modulus_;
  const NodeId to_;
  std::string low_, high_;
  std::map<Key, NodeId> tight_, free_;
};

void add_positive_integers(GraphBuilder& builder, NodeId from, int64_t least, int64_t most,
                           const NumberRange& range, NodeId to) {
  if (least <= most) IntegerDigits(builder, range, to).add(from, least, most);
}

// Adds the part after the integral digits, which is empty, or a point and digits. The fraction
// lies between two bounds, either of which may be missing.
class Fraction {
 public:
  // `whole` is the largest integral part in use: a number has at most 15 digits, unless it is a
  // bound itself, so that no reader rounds it to an excluded bound. With `uneven` the fraction must
  // not be zero.
  Fraction(GraphBuilder& builder, int64_t whole, const Magnitude* low, const Magnitude* high,
           bool uneven, NodeId to)
      : builder_(builder), low_(low), high_(high), uneven_(uneven), to_(to) {
    size_t longest = 0;
    for (const Magnitude* bound : {low, high})
      if (bound != nullptr) longest = std::max(longest, bound->fraction.size());
    const size_t digits = std::to_string(whole).size();
    longest_ = digits < kSafeDigits ? std::min(longest + kMoreDigits, kSafeDigits - digits) : 0;
  }

  void add(NodeId from) {
    const State first{0, low_ != nullptr, high_ != nullptr, false};
    if (may_end(first)) builder_.empty(from, to_);
    const NodeId point = builder_.text(from, ".");
    digits(point, first);
  }

 private:
  struct State {
    size_t place;
    bool low, high;  // the digits so far equal those of the bound
    bool nonzero;    // the last digit is not zero
    auto operator<=>(const State&) const = default;
  };

  static char digit(const Magnitude& bound, size_t place) {
    return place < bound.fraction.size() ? bound.fraction[place] : '0';
  }
  static bool is_bound(const Magnitude* bound, bool tight, size_t place) {
    return tight && !bound->excluded && place == bound->fraction.size();
  }
  // Returns whether the digits so far, followed by zeros, lie between the bounds.
  bool may_end(const State& at) const {
    if (uneven_ && !at.nonzero) return false;
    if (at.place > longest_ && !is_bound(low_, at.low, at.place) &&
        !is_bound(high_, at.high, at.place))
      return false;
    if (at.low && (at.place < low_->fraction.size() || low_->excluded)) return false;
    return !(at.high && at.place >= high_->fraction.size() && high_->excluded);
  }
  // Only digits of a bound may exceed the usual number of digits.
  bool may_go_on(const State& at) const {
    const auto has_more = [&](const Magnitude* bound, bool tight) {
      return tight && !bound->excluded && at.place < bound->fraction.size();
    };
    return at.place < longest_ || has_more(low_, at.low) || has_more(high_, at.high);
  }
  void digits(NodeId from, const State& at) {
    if (!may_go_on(at)) return;
    const char first = at.low ? digit(*low_, at.place) : '0';
    const char last = at.high ? digit(*high_, at.place) : '9';
    for (char c = first; c <= last; ++c) {
      const State next{at.place + 1, at.low && c == first, at.high && c == last, c != '0'};
      builder_.byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), node(next));
    }
  }
  NodeId node(const State& at) {
    const auto [entry, added] = known_.try_emplace(at, 0);
    if (!added) return entry->second;
    const NodeId node = entry->second = builder_.node();
    if (may_end(at)) builder_.empty(node, to_);
    digits(node, at);
    return node;
  }

  GraphBuilder& builder_;
  const Magnitude *low_, *high_;
  const bool uneven_;
  const NodeId to_;
  size_t longest_ = 0;
  std::map<State, NodeId> known_;
};

void add_magnitudes(GraphBuilder& builder, NodeId from, const Magnitude& low, const Magnitude* high,
                    bool uneven, NodeId to) {
  // A fraction that must not be zero needs digits that survive rounding.
  const int64_t unbounded = uneven ? 1'000'000'000 : kLargest + 1;
  const int64_t last = high != nullptr ? high->whole : unbounded;
  if (low.whole > last) return;
  const NodeId lowest = builder.text(from, std::to_string(low.whole));
  if (low.whole == last) return Fraction(builder, last, &low, high, uneven, to).add(lowest);
  Fraction(builder, low.whole, &low, nullptr, uneven, to).add(lowest);
  const NodeId between = builder.node();
  add_positive_integers(builder, from, low.whole + 1, last - 1, {}, between);
  Fraction(builder, high != nullptr || uneven ? last - 1 : 0, nullptr, nullptr, uneven, to)
      .add(between);
  if (high == nullptr) return;
  Fraction(builder, last, nullptr, high, uneven, to).add(builder.text(from, std::to_string(last)));
}

// Writes positive multiples of range.multiple * 10^-places as the digits of an integer with a point
// before the last `places` digits. Trailing zeros after the point may be omitted.
class FixedPoint {
 public:
  FixedPoint(GraphBuilder& builder, const NumberRange& range, NodeId to)
      : builder_(builder),
        range_(range),
        places_(static_cast<size_t>(range.places)),
        modulus_(std::lcm(range.multiple, std::max<int64_t>(1, range.not_multiple))),
        to_(to) {}

  // Requires 1 <= least <= most, in units of 10^-places.
  void add(NodeId from, int64_t least, int64_t most) {
    const size_t longest = std::max(std::to_string(most).size(), places_ + 1);
    int64_t first = 1;  // this is the least number of `size` digits
    for (size_t i = 0; i < places_; ++i)
      first *= 10;
    for (size_t size = places_ + 1; size <= longest; ++size, first *= 10) {
      const int64_t low = std::max(least, size == places_ + 1 ? 1 : first);
      const int64_t high = size == longest ? most : std::min(most, first * 10 - 1);
      if (low > high) continue;
      low_ = padded(low, size);
      high_ = padded(high, size);
      tight_.clear();
      builder_.empty(from, node({size, true, true, false, false, 0}));
    }
  }

 private:
  struct State {
    size_t left;     // this many digits are to come
    bool low, high;  // the digits so far equal those of the bound
    bool pointed;    // the point was written
    bool zero;       // the last digit is 0
    int64_t rest;
    auto operator<=>(const State&) const = default;
  };

  static std::string padded(int64_t number, size_t size) {
    std::string digits = std::to_string(number);
    return digits.insert(0, size - digits.size(), '0');
  }

  // Returns whether the number may end here, the remaining digits being zeros.
  bool may_end(const State& at) const {
    if (at.left > places_ || (at.left == places_ && at.pointed)) return false;
    if (range_.shortest && at.pointed && at.zero) return false;
    if (at.low && low_.find_first_not_of('0', low_.size() - at.left) != low_.npos) return false;
    int64_t rest = at.rest;
    for (size_t i = 0; i < at.left; ++i)
      rest = rest * 10 % modulus_;
    return rest % range_.multiple == 0 &&
           (range_.not_multiple == 0 || rest % range_.not_multiple != 0);
  }

  NodeId node(const State& at) {
    auto& known = at.low || at.high ? tight_ : free_;
    const auto [entry, added] = known.try_emplace(at, 0);
    if (!added) return entry->second;
    const NodeId node = entry->second = builder_.node();
    if (may_end(at)) builder_.empty(node, to_);
    if (at.left == places_ && !at.pointed) {
      State behind = at;
      behind.pointed = true;
      builder_.byte(node, '.', '.', this->node(behind));
    } else if (at.left > 0) {
      digits(node, at);
    }
    return node;
  }

  void digits(NodeId from, const State& at) {
    const size_t place = low_.size() - at.left;
    const char first = at.low ? low_[place] : '0', last = at.high ? high_[place] : '9';
    for (char c = first; c <= last; ++c) {
      const State next{
          at.left - 1, at.low && c == first,        at.high && c == last,
          at.pointed,  range_.shortest && c == '0', (at.rest * 10 + (c - '0')) % modulus_};
      builder_.byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), node(next));
    }
  }

  GraphBuilder& builder_;
  const NumberRange& range_;
  const size_t places_;
  const int64_t modulus_;
  const NodeId to_;
  std::string low_, high_;
  std::map<State, NodeId> tight_, free_;
};

// Converts a bound to units of 10^-places. Returns nothing if it has more than 18 digits then.
std::optional<Decimal> shifted(const Decimal& bound, size_t places) {
  Decimal result = bound;
  result.fraction.resize(std::max(places, result.fraction.size()), '0');
  result.digits += result.fraction.substr(0, places);
  result.fraction.erase(0, places);
  result.digits.erase(0, std::min(result.digits.find_first_not_of('0'), result.digits.size() - 1));
  if (result.digits.size() > kMaxDigits) return std::nullopt;
  return result;
}

// Returns the least integer not below a bound, or the greatest not above it.
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
  long place = static_cast<long>(point) + exponent;  // the point has this position in the digits
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

double number_value(const std::optional<Decimal>& number, double otherwise) {
  if (!number) return otherwise;
  return std::strtod(
      ((number->negative ? "-" : "") + number->digits + "." + number->fraction + "0").c_str(),
      nullptr);
}

void add_integers(GraphBuilder& builder, NodeId from, const NumberRange& range, NodeId to) {
  const int64_t least =
      range.least ? whole_bound(*range.least, range.least_excluded, false) : -kLargest;
  const int64_t most = range.most ? whole_bound(*range.most, range.most_excluded, true) : kLargest;
  if (least <= 0 && most >= 0 && range.not_multiple == 0) builder.byte(from, '0', '0', to);
  if (most > 0) add_positive_integers(builder, from, std::max<int64_t>(1, least), most, range, to);
  if (least < 0)
    add_positive_integers(builder, builder.text(from, "-"), std::max<int64_t>(1, -most), -least,
                          range, to);
}

bool add_multiples(GraphBuilder& builder, NodeId from, const NumberRange& range, NodeId to) {
  constexpr int64_t kLargestMultiple = 999'999'999'999'999;  // it has 15 digits
  const auto places = static_cast<size_t>(range.places);
  const auto low = range.least ? shifted(*range.least, places) : std::nullopt;
  const auto high = range.most ? shifted(*range.most, places) : std::nullopt;
  if ((range.least && !low) || (range.most && !high)) return false;
  const int64_t least = low ? whole_bound(*low, range.least_excluded, false) : -kLargestMultiple;
  const int64_t most = high ? whole_bound(*high, range.most_excluded, true) : kLargestMultiple;
  if (least <= 0 && most >= 0 && range.not_multiple == 0) builder.byte(from, '0', '0', to);
  if (most > 0 && least <= most)
    FixedPoint(builder, range, to).add(from, std::max<int64_t>(1, least), most);
  if (least < 0 && least <= most)
    FixedPoint(builder, range, to)
        .add(builder.text(from, "-"), std::max<int64_t>(1, -most), -least);
  return true;
}

void add_numbers(GraphBuilder& builder, NodeId from, const NumberRange& range, NodeId to) {
  const bool below = !range.least || range.least->negative;  // negative numbers are allowed
  const bool above = !range.most || !range.most->negative;
  if (above) {
    const bool bounded = range.least && !range.least->negative;
    const Magnitude low = bounded ? magnitude(*range.least, range.least_excluded) : Magnitude();
    if (range.most) {
      const Magnitude high = magnitude(*range.most, range.most_excluded);
      add_magnitudes(builder, from, low, &high, range.uneven, to);
    } else {
      add_magnitudes(builder, from, low, nullptr, range.uneven, to);
    }
  }
  if (below) {
    const bool bounded = range.most && range.most->negative;
    const Magnitude low =
        bounded ? magnitude(*range.most, range.most_excluded) : Magnitude{0, "", true};
    const NodeId minus = builder.text(from, "-");
    if (range.least) {
      const Magnitude high = magnitude(*range.least, range.least_excluded);
      add_magnitudes(builder, minus, low, &high, range.uneven, to);
    } else {
      add_magnitudes(builder, minus, low, nullptr, range.uneven, to);
    }
  }
}

}  // namespace walsh::grammar
