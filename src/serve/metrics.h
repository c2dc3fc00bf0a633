// Counts the events of a server, and writes the counters and histograms in Prometheus's text
// format.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schedule/scheduler.h"

namespace walsh {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void add(double value);
  // Appends the samples in the text format; `name` has no suffix, `label` is model="..." or empty.
  void write(const std::string& name, const std::string& label, std::string& out) const;

 private:
  std::vector<double> bounds_;    // they are upper bounds, without infinity
  std::vector<uint64_t> counts_;  // each bucket has one; the last is beyond all bounds
  double sum_ = 0;
  uint64_t count_ = 0;
};

// Collects the counts of a model. It is thread-safe.
class Metrics {
 public:
  Metrics();
  // Records a token, which came `seconds` after the token before it or, if it is the first, after
  // the request.
  void token(double seconds, bool first);
  void ended(const RequestEnd& end);
  // Counts request fields that have no effect.
  void ignored(uint64_t fields);

  // Keeps the counts of a scheduler whose model is unloaded.
  void keep(const SchedulerCounts& counts);
  // Returns `counts` together with those that were kept.
  SchedulerCounts with_kept(SchedulerCounts counts) const;

  struct Times {
    Histogram to_first, between, queued;
    double prompt_seconds = 0, decode_seconds = 0;
    uint64_t ignored = 0;
  };
  Times times() const;

 private:
  mutable std::mutex mutex_;
  Times times_;
  SchedulerCounts kept_;
};

// Has all that the metrics tell of a model. Without a name its samples have no label.
struct ModelMetrics {
  std::string model;
  const Metrics* metrics;
  SchedulerCounts counts;
};

// Returns the text of all models. `responses` has the numbers of answers by their status.
std::string metrics_text(std::span<const ModelMetrics> models,
                         const std::map<int, uint64_t>& responses);

// Appends a metric with a sample for each model, which may be empty.
using ModelSamples = std::vector<std::pair<std::string, double>>;
void write_metric(std::string& out, const char* name, const char* type, const char* help,
                  const ModelSamples& samples);

}  // namespace walsh
