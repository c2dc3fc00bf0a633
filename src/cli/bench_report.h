// Makes the table of `walsh bench`, in the columns that users of llama-bench know.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace walsh::cli {

struct BenchResult {
  std::string model, type, device, test;
  uint64_t bytes = 0, params = 0;  // of the whole model
  double bpw = 0;                  // of the linear layers
  int threads = 0;
  double load_seconds = 0;           // for reading, compressing and placing the weights
  std::vector<double> tokens_per_s;  // one per repetition
  // So many bytes are read per token: weights, shared by the tokens of one pass, and for generated
  // tokens the keys and values.
  double bytes_per_token = 0;
  double bandwidth = 0;            // bytes/s, measured in the same run
  double routing_seconds = 0;      // to choose the experts of a token; 0: the model has no experts
  double router_bytes = 0;         // part of bytes_per_token
  double macs_per_token = 0;       // multiply-accumulates with weights
  double peak = 0;                 // multiply-accumulates/s, measured in the same run
  std::string peak_kind = "int8";  // the number type of the peak; bf16 on a GPU

  double mean() const;
  double stddev() const;
  double bytes_per_s() const { return mean() * bytes_per_token; }
  double bandwidth_share() const { return bandwidth > 0 ? bytes_per_s() / bandwidth : 0; }
  double peak_share() const { return peak > 0 ? mean() * macs_per_token / peak : 0; }
};

// `format` is md, csv or json.
std::string bench_text(const std::vector<BenchResult>& results, const std::string& format);

}  // namespace walsh::cli
