// `walsh bench --formats` measures what each storage format costs to encode and to decode.
#pragma once

#include <string>
#include <vector>

#include "base/thread_pool.h"

namespace walsh::cli {

struct FormatBenchOptions {
  std::vector<std::string> types;  // empty: all formats that have codes
  int repetitions = 5;
  std::string output = "md";  // md, csv or json
};

// Gives one row per format: million weights per second that one core encodes at full effort;
// billion weights per second that one core decodes and multiplies with one vector from its
// second-level cache (both in processor time); bytes per second of weights that all threads of
// `pool` read from memory in products, and their share of the bandwidth measured before. Throws
// usage for an unknown type.
std::string bench_formats(const FormatBenchOptions& options, ThreadPool& pool);

}  // namespace walsh::cli
