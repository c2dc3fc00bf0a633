// What a server has done, as Prometheus reads it.
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
  // Lines of the text format, `name` without a suffix.
  void write(const std::string& name, const std::string& help, std::string& out) const;

 private:
  std::vector<double> bounds_;    // upper ones, without infinity
  std::vector<uint64_t> counts_;  // up to each bound, and beyond the last
  double sum_ = 0;
  uint64_t count_ = 0;
};

// From any thread.
class Metrics {
 public:
  Metrics();
  // A token came so many seconds after the one before it, or the request (first).
  void token(double seconds, bool first);
  void ended(const RequestEnd& end);
  void response(int status);
  // So many fields of a request mean nothing here.
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
