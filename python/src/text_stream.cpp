#include "text_stream.h"

#include <chrono>
#include <utility>

#include "base/stop.h"
#include "calls.h"
#include "walsh/error.h"
#include "walsh/stop.h"

namespace walsh::python {

TextStream::TextStream(Work work)
    : process_(this_process()), thread_([this, work = std::move(work)] { run(work); }) {}

// Python drops its last reference with the interpreter's lock held: other threads go on while the
// step that runs comes to its end.
TextStream::~TextStream() {
  const Unlocked others;
  close();
}

void TextStream::run(const Work& work) {
  GenerationResult result;
  std::string text;
  std::exception_ptr error;
  const Stoppable stoppable(stop_);
  try {
    const StopScope scope(stop_);
    result = work([this, &text](std::string_view piece) {
      const std::lock_guard lock(mutex_);
      text += piece;
      pieces_.emplace_back(piece);
      changed_.notify_all();
      return !stop_;
    });
  } catch (...) {
    error = std::current_exception();
    result.text = text;
    if (stop_) result.reason = FinishReason::stopped;
  }
  const std::lock_guard lock(mutex_);
  result_ = std::move(result);
  error_ = error;
  done_ = true;
  changed_.notify_all();
}

std::optional<std::string> TextStream::next() {
  if (process_ != this_process())
    throw Error(ErrorCode::usage, "stream", "it was begun before this process was forked off");
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return done_ || !pieces_.empty(); };
  while (!changed_.wait_for(lock, std::chrono::milliseconds(20), ready))
    check_stop();
  if (!pieces_.empty()) {
    std::string piece = std::move(pieces_.front());
    pieces_.pop_front();
    return piece;
  }
  if (error_ && !stop_) std::rethrow_exception(error_);
  return std::nullopt;
}

void TextStream::close() {
  stop_ = true;
  if (process_ != this_process()) {  // the thread is one of the parent, and none to wait for
    if (thread_.joinable()) new std::thread(std::move(thread_));
    return;
  }
  const std::lock_guard lock(joining_);
  if (thread_.joinable()) thread_.join();
}

GenerationResult TextStream::result() const {
  const std::lock_guard lock(mutex_);
  return result_;
}

}  // namespace walsh::python
