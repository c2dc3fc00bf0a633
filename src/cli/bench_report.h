// Makes the table of `walsh bench`, in the columns that users of llama-bench know.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace walsh::cli {

struct BenchResult {
  std::string model, type, device, test;
  uint64_t bytes = 0, params = 0;  // the whole model has them
  double bpw = 0;                  // it counts the linear layers
  int threads = 0;
  // Reading, compressing and placing the weights took this long.
  double load_seconds = 0;
  std::vector<double> tokens_per_s;  // each repetition has one
  // This many bytes are read per token. The weights count once for all tokens of a pass; generated
  // tokens also read the keys and values.
  double bytes_per_token = 0;
  double bandwidth = 0;  // The machine reads this many bytes/s in the same run.
  // Choosing the experts of a token took this long; 0 means that the model has no experts.
  double routing_seconds = 0;
  double router_bytes = 0;    // they are a part of bytes_per_token
  double macs_per_token = 0;  // it counts multiply-accumulates with weights
  // The peak counts multiply-accumulates/s and was measured in the same run.
  double peak = 0;
  std::string peak_kind = "int8";  // this number type has the peak; it is bf16 on a GPU

  double mean() const;
  double stddev() const;
  double bytes_per_s() const { return mean() * bytes_per_token; }
  double bandwidth_share() const { return bandwidth > 0 ? bytes_per_s() / bandwidth : 0; }
  double peak_share() const { return peak > 0 ? mean() * macs_per_token / peak : 0; }
};

// Returns the table. `format` is md, csv or json.
std::string bench_text(const std::vector<BenchResult>& results, const std::string& format);

}  // namespace walsh::cli
