#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace walsh {
namespace {

// Returns buckets from a millisecond to a minute.
std::vector<double> time_bounds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60};
}

void value(std::string& out, const char* name, const char* type, const char* help, double number) {
  fmt::format_to(std::back_inserter(out), "# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help,
                 type, number);
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

void Histogram::write(const std::string& name, const std::string& help, std::string& out) const {
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
  uint64_t below = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    fmt::format_to(to, "{}_bucket{{le=\"{}\"}} {}\n", name, bounds_[i], below);
  }
  fmt::format_to(to, "{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, count_,
                 sum_);
}

Metrics::Metrics() : to_first_(time_bounds()), between_(time_bounds()), queued_(time_bounds()) {}

void Metrics::token(double seconds, bool first) {
  const std::lock_guard lock(mutex_);
  (first ? to_first_ : between_).add(seconds);
}

void Metrics::ended(const RequestEnd& end) {
  const std::lock_guard lock(mutex_);
  queued_.add(end.queue_seconds);
  prompt_seconds_ += end.prompt_seconds;
  decode_seconds_ += end.decode_seconds;
}

void Metrics::ignored(uint64_t fields) {
  const std::lock_guard lock(mutex_);
  ignored_ += fields;
}

void Metrics::response(int status) {
  const std::lock_guard lock(mutex_);
  ++responses_[status];
}

std::string Metrics::text(const SchedulerCounts& c) const {
  std::string out;
  const auto count = [&](const char* name, const char* help, uint64_t number) {
    value(out, name, "counter", help, static_cast<double>(number));
  };
  const auto gauge = [&](const char* name, const char* help, int64_t number) {
    value(out, name, "gauge", help, static_cast<double>(number));
  };
  count("walsh:prompt_tokens_total", "Prompt tokens evaluated", c.prompt_tokens);
  count("walsh:cached_tokens_total", "Prompt tokens taken from the prefix cache", c.cached_tokens);
  count("walsh:tokens_predicted_total", "Tokens generated", c.generated_tokens);
  count("walsh:drafted_tokens_total", "Tokens that were guessed", c.drafted_tokens);
  count("walsh:drafted_right_tokens_total", "Drafted tokens that were right", c.drafted_right);
  count("walsh:requests_total", "Texts requested", c.requests);
  count("walsh:requests_ended_total", "Texts completed", c.ended);
  count("walsh:requests_failed_total", "Texts that failed", c.failed);
  count("walsh:requests_cancelled_total", "Texts cancelled because their clients disconnected",
        c.cancelled);
  count("walsh:requests_refused_total", "Texts refused because too many were waiting", c.refused);
  count("walsh:preemptions_total", "Texts preempted", c.preempted);
  count("walsh:steps_total", "Batches evaluated", c.steps);
  gauge("walsh:requests_processing", "Texts running", c.running);
  gauge("walsh:requests_deferred", "Texts waiting", c.waiting);
  gauge("walsh:kept_prefixes", "Texts in the prefix cache", c.kept);
  gauge("walsh:kv_cache_pages", "Pages of the KV cache", c.pages);
  gauge("walsh:kv_cache_free_pages", "Free pages of the KV cache", c.free_pages);
  const std::lock_guard lock(mutex_);
  value(out, "walsh:prompt_seconds_total", "counter", "Time that texts took to their first token",
        prompt_seconds_);
  value(out, "walsh:tokens_predicted_seconds_total", "counter",
        "Time that texts took from there to their end", decode_seconds_);
  count("walsh:ignored_fields_total", "Request fields without effect", ignored_);
  to_first_.write("walsh:time_to_first_token_seconds", "From a request to its first token", out);
  between_.write("walsh:time_between_tokens_seconds", "From a token to the next", out);
  queued_.write("walsh:queue_seconds", "From a request to its first step", out);
  out += "# HELP walsh:responses_total Answers by status\n# TYPE walsh:responses_total counter\n";
  for (const auto& [status, number] : responses_)
    fmt::format_to(std::back_inserter(out), "walsh:responses_total{{status=\"{}\"}} {}\n", status,
                   number);
  return out;
}

}  // namespace walsh
