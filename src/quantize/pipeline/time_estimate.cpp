#include "quantize/pipeline/time_estimate.h"

#include <cctype>

#include "codec/codec.h"

namespace walsh {
namespace {

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
    if (!(kind.left > 0)) continue;
    const auto format = formats_.find(format_of(name));
    const bool known = format != formats_.end() && format->second.done > 0;
    const Kind& measured = kind.done > 0 ? kind : known ? format->second : total_;
    seconds += kind.left * measured.seconds / measured.done;
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
  if (format.dense && !converted) return 0.5;
  return codec_of(format).cost(format, options);
}

}  // namespace walsh
