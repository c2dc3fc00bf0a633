// Counts what happens, and writes the counters and histograms in Prometheus's text format.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "schedule/scheduler.h"

namespace walsh {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void add(double value);
  // Appends the lines of the text format; `name` has no suffix.
  void write(const std::string& name, const std::string& help, std::string& out) const;

 private:
  std::vector<double> bounds_;    // upper bounds, without infinity
  std::vector<uint64_t> counts_;  // per bucket; the last is beyond all bounds
  double sum_ = 0;
  uint64_t count_ = 0;
};

// Collects what the server counts. It is thread-safe.
class Metrics {
 public:
  Metrics();
  // Records a token: seconds since the token before it, or (first) since the request.
  void token(double seconds, bool first);
  void ended(const RequestEnd& end);
  void response(int status);
  // Counts request fields that have no effect.
  void ignored(uint64_t fields);

  std::string text(const SchedulerCounts& counts) const;

 private:
  mutable std::mutex mutex_;
  Histogram to_first_, between_, queued_;
  std::map<int, uint64_t> responses_;
  double prompt_seconds_ = 0, decode_seconds_ = 0;
  uint64_t ignored_ = 0;
};

}  // namespace walsh
