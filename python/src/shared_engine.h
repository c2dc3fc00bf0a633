// Threads of Python share this engine.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/stop.h"
#include "calls.h"
#include "lost_files.h"
#include "walsh/engine.h"
#include "walsh/error.h"

namespace walsh::python {

// Calls that evaluate tokens run one at a time, and none after close(); calls that only ask for
// texts and tokens do not wait for them.
class SharedEngine {
 public:
  enum class Kind { call, stream };  // close() ends streams, and waits for calls

  SharedEngine(const std::string& path, const EngineOptions& options) : path_(path) {
    reading_files(path, [&] { engine_ = std::make_shared<Engine>(Engine::open(path, options)); });
  }
  ~SharedEngine() { leave_to_parent(); }
  SharedEngine(const SharedEngine&) = delete;
  SharedEngine& operator=(const SharedEngine&) = delete;

  // Calls body(engine) once every other call is done; throws usage if it is closed.
  template <typename Body>
  void use(const Body& body, Kind kind = Kind::call) {
    check_process();
    const Listed listed(*this, kind);
    std::unique_lock lock(working_, std::defer_lock);
    while (!lock.try_lock_for(std::chrono::milliseconds(20)))
      check_stop();
    const std::shared_ptr<Engine> engine = open_engine();
    reading_files(path_, [&] { body(*engine); });
  }
  // Does the same beside other calls, for what the engine answers without evaluating tokens.
  template <typename Body>
  void ask(const Body& body) {
    check_process();
    const std::shared_ptr<const Engine> engine = open_engine();
    reading_files(path_, [&] { body(*engine); });
  }
  // Calls body with two models at once. Locks are taken in one order, so that two threads that
  // compare them either way do not wait for each other for ever.
  template <typename Body>
  static void use_both(SharedEngine& a, SharedEngine& b, const Body& body) {
    const bool in_order = std::less<>()(&a, &b);
    SharedEngine &first = in_order ? a : b, &second = in_order ? b : a;
    first.use([&](Engine&) { second.use([&](Engine&) { body(*a.engine_, *b.engine_); }); });
  }
  // Ends what runs and what waits; the model can be used again.
  void cancel() {
    if (process_ == this_process()) stop(Kind::call);
  }
  void close() {
    if (leave_to_parent()) return;
    stop(Kind::stream);
    const std::lock_guard lock(working_);
    std::shared_ptr<Engine> last;  // is destroyed when nobody waits for the lock
    const std::lock_guard state(state_);
    last.swap(engine_);
  }
  // Throws if the files were cut short; a stream asks between its pieces.
  void check_files() const { throw_if_lost(path_); }

 private:
  // Lists the flag of a call, which others may set meanwhile.
  class Listed {
   public:
    Listed(SharedEngine& engine, Kind kind) : engine_(engine), flag_(Stoppable::current()) {
      const std::lock_guard lock(engine_.state_);
      if (flag_ != nullptr) engine_.running_.emplace(flag_, kind);
    }
    ~Listed() {
      const std::lock_guard lock(engine_.state_);
      engine_.running_.erase(flag_);
    }
    Listed(const Listed&) = delete;
    Listed& operator=(const Listed&) = delete;

   private:
    SharedEngine& engine_;
    std::atomic<bool>* flag_;
  };

  void check_process() const {
    if (process_ != this_process()) {
      throw Error(ErrorCode::usage, "model",
                  "it was opened before this process was forked off: open it here");
    }
  }
  std::shared_ptr<Engine> open_engine() {
    const std::lock_guard lock(state_);
    if (!engine_) throw Error(ErrorCode::usage, "model", "it is closed");
    return engine_;
  }
  // Stops streams, or all.
  void stop(Kind widest) {
    const std::lock_guard lock(state_);
    for (const auto& [flag, kind] : running_)
      if (widest == Kind::call || kind == Kind::stream) *flag = true;
  }
  // Leaves the engine alone in the child of a fork: the threads that it would wait for do not exist
  // there.
  bool leave_to_parent() {
    if (process_ == this_process()) return false;
    if (engine_) new std::shared_ptr<Engine>(std::move(engine_));
    return true;
  }

  const int process_ = this_process();
  const std::string path_;
  std::timed_mutex working_;  // of the call that evaluates tokens
  std::mutex state_;          // of what follows; is held for a moment
  std::shared_ptr<Engine> engine_;
  std::unordered_map<std::atomic<bool>*, Kind> running_;
};

}  // namespace walsh::python
