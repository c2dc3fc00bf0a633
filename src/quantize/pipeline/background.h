// Work on a thread of its own beside what its owner does.
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
  // Throws limit when the system refuses to start a thread.
  explicit Background(std::function<void()> work);
  // Has the work stop as by a StopScope (walsh/stop.h), and waits for its end.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Waits for the end; what the work has thrown is rethrown. Throws interrupted when the caller
  // shall stop.
  void wait();
  // The same without what the work has thrown.
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
