// Logs one line per answered request.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "schedule/request.h"
#include "serve/http.h"

namespace walsh {

enum class LogFormat : uint8_t { text, json, off };

// This is logged of a request. It has nothing of its texts, its query or its key.
struct RequestRecord {
  explicit RequestRecord(const HttpRequest& request);
  // Adds a text of the answer that has ended. Only one thread may call this.
  void add(const RequestEnd& end);
  // Returns the line without a line feed. `seconds` is the time since the record was made.
  std::string line(LogFormat format, double seconds) const;

  std::string peer, method, path;
  int status = 0;  // 0 means that the client disconnected before the answer
  bool whole = false;
  // A prompt of token ids does not begin with the BOS that texts of this model begin with.
  bool lacks_bos = false;
  int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
  const std::chrono::system_clock::time_point time = std::chrono::system_clock::now();
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

// Writes lines on its own thread, so that nobody waits for a terminal or a full pipe. Lines that
// arrive while too many wait are dropped, and their number is logged.
class RequestLog {
 public:
  // `write` gets whole lines, with line feeds.
  RequestLog(LogFormat format, std::function<void(const std::string& lines)> write,
             std::chrono::milliseconds patience = std::chrono::seconds(1));
  // Waits until all lines are written, but no longer than `patience`: if nobody reads them, `write`
  // may still be waiting afterwards.
  ~RequestLog();
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  // This is thread-safe.
  void add(const RequestRecord& record);

 private:
  // The thread uses these, which may outlive the log.
  struct Shared {
    LogFormat format;
    std::function<void(const std::string&)> write;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::string> lines;
    uint64_t left_out = 0;
    bool ending = false, ended = false;
  };
  static void run(Shared& shared);

  const std::chrono::milliseconds patience_;
  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace walsh
