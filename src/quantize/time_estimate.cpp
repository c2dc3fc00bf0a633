#include "quantize/time_estimate.h"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace walsh {
namespace {

double scalar_cost(const ScalarCode& code, const EncodeOptions& options) {
  if (code.fit == ScaleFit::absmax) return 11;
  if (code.fit == ScaleFit::sigma) return 8;
  const bool searched = options.effort == Effort::full && options.scale_rule == ScaleRule::search;
  const double search = searched ? 14 + 2 * std::ldexp(1.0, code.bits) : 8;
  return code.sub_group == 0 ? search : 1.8 * search;
}

std::string format_of(const std::string& kind) {
  return kind.substr(0, kind.find(' '));
}

}  // namespace

void TimeEstimate::add(const std::string& kind, double work) {
  kinds_[kind].left += work;
}

void TimeEstimate::skip(const std::string& kind, double work) {
  kinds_[kind].left -= work;
}

void TimeEstimate::finish(const std::string& kind, double work, double seconds) {
  skip(kind, work);
  for (Kind* k : {&kinds_[kind], &formats_[format_of(kind)], &total_}) {
    k->done += work;
    k->seconds += seconds;
  }
}

double TimeEstimate::seconds_left() const {
  if (!(total_.done > 0)) return -1;
  double seconds = 0;
  for (const auto& [name, kind] : kinds_) {
    const auto format = formats_.find(format_of(name));
    const Kind& measured = kind.done > 0              ? kind
                           : format != formats_.end() ? format->second
                                                      : total_;
    seconds += std::max(0.0, kind.left) * measured.seconds / measured.done;
  }
  return seconds;
}

std::string step_kind(std::string_view tensor, const Format& format) {
  std::string kind(format.name);
  kind += ' ';
  bool number = false;
  for (const char c : tensor) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit) kind += c;
    if (digit && !number) kind += '#';
    number = digit;
  }
  return kind;
}

double encoding_cost(const Format& format, const EncodeOptions& options, bool converted) {
  switch (format.kind) {
    case CodeKind::none:
      return converted ? 2 : 0.5;
    case CodeKind::product:
      return (format.product.own_codebook ? 900 : 570) * (options.effort == Effort::full ? 1 : 0.3);
    case CodeKind::trellis: {
      const TrellisCode& code = format.trellis;
      const double search = 40 + 0.14 * std::ldexp(1.0, code.state_bits) / code.values;
      return options.effort == Effort::full ? search : 0.7 * search;
    }
    case CodeKind::scalar:
      break;
  }
  double cost = 0;
  for (int pass = 0; pass < format.passes; ++pass)
    cost += scalar_cost(format.code[pass], options);
  return cost;
}

}  // namespace walsh
