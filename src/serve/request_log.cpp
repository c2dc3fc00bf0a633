#include "serve/request_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <utility>

#include "io/json.h"
#include "io/printable.h"

namespace walsh {
namespace {

constexpr size_t kMostWaiting = 4096;  // it counts lines
constexpr size_t kMostPath = 200;      // a line shows this many bytes of the path

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

RequestLog::RequestLog(LogFormat format, std::function<void(const std::string&)> write,
                       std::chrono::milliseconds patience)
    : patience_(patience), shared_(std::make_shared<Shared>()) {
  shared_->format = format;
  shared_->write = std::move(write);
  if (format != LogFormat::off) thread_ = std::thread([shared = shared_] { run(*shared); });
}

RequestLog::~RequestLog() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(shared_->mutex);
  shared_->ending = true;
  shared_->changed.notify_all();
  const bool ended = shared_->changed.wait_for(lock, patience_, [&] { return shared_->ended; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void RequestLog::add(const RequestRecord& record) {
  if (shared_->format == LogFormat::off) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - record.start;
  std::string line = record.line(shared_->format, seconds.count()) + "\n";
  const std::lock_guard lock(shared_->mutex);
  if (shared_->lines.size() >= kMostWaiting) {
    ++shared_->left_out;
    return;
  }
  shared_->lines.push_back(std::move(line));
  shared_->changed.notify_all();
}

void RequestLog::run(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  while (true) {
    shared.changed.wait(lock, [&] { return shared.ending || !shared.lines.empty(); });
    if (shared.lines.empty()) break;
    const std::vector<std::string> lines = std::exchange(shared.lines, {});
    const uint64_t left_out = std::exchange(shared.left_out, 0);
    lock.unlock();
    std::string text;
    for (const std::string& line : lines)
      text += line;
    if (left_out > 0 && shared.format == LogFormat::json) {
      text += fmt::format("{{\"left_out\":{}}}\n", left_out);
    } else if (left_out > 0) {
      text += fmt::format(
          "{} more requests were not logged, because their lines could not be written in time\n",
          left_out);
    }
    shared.write(text);
    lock.lock();
  }
  shared.ended = true;
  shared.changed.notify_all();
}

}  // namespace walsh
