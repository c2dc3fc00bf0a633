// Computes with sets of code points.
#include <algorithm>

#include "grammar/graph.h"

namespace walsh::grammar {
namespace {

constexpr char32_t kLast = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

CodeSet merged(CodeSet ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  CodeSet result;
  for (const CodeRange& range : ranges) {
    if (range.first > range.last) continue;
    if (!result.empty() && range.first <= result.back().last + 1) {
      result.back().last = std::max(result.back().last, range.last);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

CodeSet without_surrogates(const CodeSet& set) {
  return common_part(set, {{0, kFirstSurrogate - 1}, {kLastSurrogate + 1, kLast}});
}

}  // namespace

CodeSet normal_set(CodeSet ranges) {
  return without_surrogates(merged(std::move(ranges)));
}

CodeSet complement(const CodeSet& set) {
  CodeSet result;
  char32_t next = 0;
  for (const CodeRange& range : set) {
    if (range.first > next) result.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) result.push_back({next, kLast});
  return without_surrogates(result);
}

CodeSet common_part(const CodeSet& a, const CodeSet& b) {
  CodeSet result;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const char32_t first = std::max(a[i].first, b[j].first);
    const char32_t last = std::min(a[i].last, b[j].last);
    if (first <= last) result.push_back({first, last});
    if (a[i].last < b[j].last) {
      ++i;
    } else {
      ++j;
    }
  }
  return result;
}

}  // namespace walsh::grammar
