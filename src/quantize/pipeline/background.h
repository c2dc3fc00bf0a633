// Runs work on a thread of its own while its owner does something else.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace walsh {

class Background {
 public:
  // Throws limit if the system refuses to start a thread.
  explicit Background(std::function<void()> work);
  // Asks the work to stop, as a StopScope does (walsh/stop.h), and waits for its end.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Waits for the end and rethrows what the work has thrown. Throws interrupted if the caller is
  // asked to stop.
  void wait();
  // Waits for the end, but does not rethrow.
  void wait_for_end();

 private:
  void run(const std::function<void()>& work);

  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace walsh
