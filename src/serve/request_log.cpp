#include "serve/request_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <utility>

#include "io/json.h"
#include "io/printable.h"

namespace walsh {
namespace {

constexpr size_t kMostWaiting = 4096;  // lines
constexpr size_t kMostPath = 200;      // bytes of the path shown in a line

std::string time_text(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

}  // namespace

RequestRecord::RequestRecord(const HttpRequest& request)
    : peer(request.peer),
      method(printable(request.method, kMostPath)),
      path(printable(request.path, kMostPath)) {}

void RequestRecord::add(const RequestEnd& end) {
  prompt_tokens += end.prompt_tokens;
  cached_tokens += end.cached_tokens;
  tokens += end.tokens;
}

std::string RequestRecord::line(LogFormat format, double seconds) const {
  if (format == LogFormat::json) {
    Json object = {{"time", time_text(time)},
                   {"peer", peer},
                   {"method", method},
                   {"path", path},
                   {"status", status},
                   {"whole", whole},
                   {"seconds", seconds},
                   {"tokens", tokens},
                   {"prompt_tokens", prompt_tokens},
                   {"cached_tokens", cached_tokens}};
    if (lacks_bos) object["lacks_bos"] = true;
    return format_json(object, -1);
  }
  std::string text =
      fmt::format("{} {} {} {} {} {:.3f} s", time_text(time), peer.empty() ? "-" : peer,
                  method.empty() ? "-" : method, path.empty() ? "-" : path, status, seconds);
  if (prompt_tokens > 0)
    text += fmt::format(", {} tokens read ({} cached), {} written", prompt_tokens, cached_tokens,
                        tokens);
  if (lacks_bos) text += ", a prompt of token ids lacks the model's BOS";
  if (!whole) text += ", broken off";
  return text;
}

RequestLog::RequestLog(LogFormat format, std::function<void(const std::string&)> write)
    : format_(format), write_(std::move(write)) {
  if (format_ != LogFormat::off) thread_ = std::thread([this] { run(); });
}

RequestLog::~RequestLog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void RequestLog::add(const RequestRecord& record) {
  if (format_ == LogFormat::off) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - record.start;
  std::string line = record.line(format_, seconds.count()) + "\n";
  const std::lock_guard lock(mutex_);
  if (lines_.size() >= kMostWaiting) {
    ++left_out_;
    return;
  }
  lines_.push_back(std::move(line));
  changed_.notify_all();
}

void RequestLog::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !lines_.empty(); });
    if (lines_.empty()) return;
    const std::vector<std::string> lines = std::exchange(lines_, {});
    const uint64_t left_out = std::exchange(left_out_, 0);
    lock.unlock();
    std::string text;
    for (const std::string& line : lines)
      text += line;
    if (left_out > 0 && format_ == LogFormat::json) {
      text += fmt::format("{{\"left_out\":{}}}\n", left_out);
    } else if (left_out > 0) {
      text += fmt::format("{} more requests, whose lines could not be written in time\n", left_out);
    }
    write_(text);
    lock.lock();
  }
}

}  // namespace walsh
