// `walsh bench --formats` measures what each storage format costs to encode and to decode.
#pragma once

#include <string>
#include <vector>

#include "base/thread_pool.h"

namespace walsh::cli {

struct FormatBenchOptions {
  std::vector<std::string> types;  // an empty list means all formats that have codes
  int repetitions = 5;
  std::string output = "md";  // it is md, csv or json
};

// Returns a table with one row per format. It has the million weights per second that one core
// encodes at full effort; the billion weights per second that one core decodes and multiplies with
// one vector from its second-level cache (both in processor time); and the bytes per second of
// weights that all threads of `pool` read from memory in products, with their share of the
// bandwidth measured before. Throws usage for an unknown type.
std::string bench_formats(const FormatBenchOptions& options, ThreadPool& pool);

}  // namespace walsh::cli
