#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace walsh {
namespace {

// Returns buckets from a millisecond to a minute.
std::vector<double> time_bounds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60};
}

// Returns model="NAME"; empty for no name.
std::string label_of(const std::string& model) {
  if (model.empty()) return "";
  std::string label = "model=\"";
  for (const char c : model) {
    if (c == '"' || c == '\\') label += '\\';
    label += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return label + '"';
}

void write_head(std::string& out, const char* name, const char* type, const char* help) {
  fmt::format_to(std::back_inserter(out), "# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::add(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(bound - bounds_.begin())];
  sum_ += value;
  ++count_;
}

void Histogram::write(const std::string& name, const std::string& label, std::string& out) const {
  const auto to = std::back_inserter(out);
  const std::string own = label.empty() ? "" : "{" + label + "}";
  const std::string first = label.empty() ? "" : label + ",";
  uint64_t below = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    fmt::format_to(to, "{}_bucket{{{}le=\"{}\"}} {}\n", name, first, bounds_[i], below);
  }
  fmt::format_to(to, "{0}_bucket{{{1}le=\"+Inf\"}} {3}\n{0}_sum{2} {4}\n{0}_count{2} {3}\n", name,
                 first, own, count_, sum_);
}

Metrics::Metrics()
    : times_{Histogram(time_bounds()), Histogram(time_bounds()), Histogram(time_bounds())} {}

void Metrics::token(double seconds, bool first) {
  const std::lock_guard lock(mutex_);
  (first ? times_.to_first : times_.between).add(seconds);
}

void Metrics::ended(const RequestEnd& end) {
  const std::lock_guard lock(mutex_);
  times_.queued.add(end.queue_seconds);
  times_.prompt_seconds += end.prompt_seconds;
  times_.decode_seconds += end.decode_seconds;
}

void Metrics::ignored(uint64_t fields) {
  const std::lock_guard lock(mutex_);
  times_.ignored += fields;
}

Metrics::Times Metrics::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

SchedulerCounts Metrics::with_kept(SchedulerCounts counts) const {
  using Counts = SchedulerCounts;
  constexpr uint64_t Counts::*kTotals[] = {&Counts::steps,          &Counts::requests,
                                           &Counts::ended,          &Counts::failed,
                                           &Counts::cancelled,      &Counts::refused,
                                           &Counts::preempted,      &Counts::prompt_tokens,
                                           &Counts::cached_tokens,  &Counts::generated_tokens,
                                           &Counts::drafted_tokens, &Counts::drafted_right,
                                           &Counts::restored,       &Counts::shifts};
  const std::lock_guard lock(mutex_);
  for (const auto total : kTotals)
    counts.*total += kept_.*total;
  return counts;
}

// What was running when it was unloaded runs no more.
void Metrics::keep(const SchedulerCounts& counts) {
  SchedulerCounts all = with_kept(counts);
  const std::lock_guard lock(mutex_);
  kept_ = all;
}

void write_metric(std::string& out, const char* name, const char* type, const char* help,
                  const ModelSamples& samples) {
  write_head(out, name, type, help);
  for (const auto& [model, number] : samples) {
    const std::string label = label_of(model);
    fmt::format_to(std::back_inserter(out), "{}{} {}\n", name,
                   label.empty() ? "" : "{" + label + "}", number);
  }
}

std::string metrics_text(std::span<const ModelMetrics> models,
                         const std::map<int, uint64_t>& responses) {
  using Counts = SchedulerCounts;
  using Times = Metrics::Times;
  std::string out;
  std::vector<Times> times;
  for (const ModelMetrics& model : models)
    times.push_back(model.metrics->times());
  const auto add = [&](const char* name, const char* type, const char* help, auto number) {
    ModelSamples samples;
    for (size_t i = 0; i < models.size(); ++i)
      samples.emplace_back(models[i].model,
                           static_cast<double>(number(models[i].counts, times[i])));
    write_metric(out, name, type, help, samples);
  };
  const auto count = [&](const char* name, const char* help, auto member) {
    add(name, "counter", help, [&](const Counts& c, const Times&) { return c.*member; });
  };
  const auto gauge = [&](const char* name, const char* help, auto member) {
    add(name, "gauge", help, [&](const Counts& c, const Times&) { return c.*member; });
  };
  const auto total = [&](const char* name, const char* help, auto member) {
    add(name, "counter", help, [&](const Counts&, const Times& t) { return t.*member; });
  };
  const auto histogram = [&](const char* name, const char* help, Histogram Times::*member) {
    write_head(out, name, "histogram", help);
    for (size_t i = 0; i < models.size(); ++i)
      (times[i].*member).write(name, label_of(models[i].model), out);
  };
  count("walsh:prompt_tokens_total", "Prompt tokens evaluated", &Counts::prompt_tokens);
  count("walsh:cached_tokens_total", "Prompt tokens taken from the prefix cache",
        &Counts::cached_tokens);
  count("walsh:tokens_predicted_total", "Tokens generated", &Counts::generated_tokens);
  count("walsh:drafted_tokens_total", "Tokens that were guessed", &Counts::drafted_tokens);
  count("walsh:drafted_right_tokens_total", "Drafted tokens that were right",
        &Counts::drafted_right);
  count("walsh:requests_total", "Texts requested", &Counts::requests);
  count("walsh:requests_ended_total", "Texts completed", &Counts::ended);
  count("walsh:requests_failed_total", "Texts that failed", &Counts::failed);
  count("walsh:requests_cancelled_total", "Texts cancelled because their clients disconnected",
        &Counts::cancelled);
  count("walsh:requests_refused_total", "Texts refused because too many were waiting",
        &Counts::refused);
  count("walsh:preemptions_total", "Texts preempted", &Counts::preempted);
  count("walsh:restored_prefixes_total", "Prefixes read from files (--cache-dir)",
        &Counts::restored);
  count("walsh:context_shifts_total", "Contexts shifted (--context-shift)", &Counts::shifts);
  count("walsh:steps_total", "Batches evaluated", &Counts::steps);
  gauge("walsh:requests_processing", "Texts running", &Counts::running);
  gauge("walsh:requests_deferred", "Texts waiting", &Counts::waiting);
  gauge("walsh:kept_prefixes", "Texts in the prefix cache", &Counts::kept);
  gauge("walsh:kv_cache_pages", "Pages of the KV cache", &Counts::pages);
  gauge("walsh:kv_cache_free_pages", "Free pages of the KV cache", &Counts::free_pages);
  total("walsh:prompt_seconds_total", "Time that texts took to their first token",
        &Times::prompt_seconds);
  total("walsh:tokens_predicted_seconds_total", "Time that texts took from there to their end",
        &Times::decode_seconds);
  total("walsh:ignored_fields_total", "Request fields without effect", &Times::ignored);
  histogram("walsh:time_to_first_token_seconds", "From a request to its first token",
            &Times::to_first);
  histogram("walsh:time_between_tokens_seconds", "From a token to the next", &Times::between);
  histogram("walsh:queue_seconds", "From a request to its first step", &Times::queued);
  write_head(out, "walsh:responses_total", "counter", "Answers by status");
  for (const auto& [status, number] : responses)
    fmt::format_to(std::back_inserter(out), "walsh:responses_total{{status=\"{}\"}} {}\n", status,
                   number);
  return out;
}

}  // namespace walsh
