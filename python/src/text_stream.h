// Generates a text on a thread of its own while somebody reads it piece by piece.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "walsh/engine.h"

namespace walsh::python {

class TextStream {
 public:
  using Sink = std::function<bool(std::string_view)>;
  // Generates into the sink, which says whether to go on.
  using Work = std::function<GenerationResult(const Sink&)>;

  explicit TextStream(Work work);
  // This is called with the interpreter's lock held.
  ~TextStream();

  // Returns the next piece once there is one; nothing at the end. Throws what ended the work.
  std::optional<std::string> next();
  // Ends the work and waits for it.
  void close();
  // Returns the result of finished work; for closed work, its text so far. It is empty before that.
  GenerationResult result() const;

 private:
  void run(const Work& work);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> pieces_;
  bool done_ = false;
  std::exception_ptr error_;
  GenerationResult result_;
  std::atomic<bool> stop_{false};
  std::mutex joining_;
  const int process_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace walsh::python
