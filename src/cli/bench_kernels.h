// `walsh bench --kernels` measures single matrix products, per format, shape and batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"

namespace walsh::cli {

struct MatrixShape {
  int64_t cols, rows;
};
// Reads "KxN" as K columns, which are inputs, and N rows, which are outputs. Throws usage naming
// --shapes.
MatrixShape parse_shape(const std::string& text);

struct KernelBenchOptions {
  std::vector<std::string> types;   // an empty list means a selection
  std::vector<std::string> shapes;  // parse_shape reads them
  std::vector<int64_t> batches;
  int repetitions = 5;
  std::string output = "md";  // it is md, csv or json
};

// Returns the table as text. Throws usage for an unknown type or a malformed shape.
std::string bench_kernels(const KernelBenchOptions& options, ThreadPool& pool);

}  // namespace walsh::cli
