#include "quantize/pipeline/background.h"

#include <chrono>
#include <string>
#include <system_error>
#include <utility>

#include "base/stop.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{20};

}  // namespace

Background::Background(std::function<void()> work) {
  try {
    thread_ = std::thread([this, work = std::move(work)] { run(work); });
  } catch (const std::system_error& e) {
    throw Error(ErrorCode::limit, "threads", std::string("cannot start another one: ") + e.what());
  }
}

Background::~Background() {
  stop_ = true;
  thread_.join();
}

void Background::run(const std::function<void()>& work) {
  std::exception_ptr error;
  try {
    const StopScope scope(stop_);
    work();
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  error_ = error;
  done_ = true;
  ended_.notify_all();
}

void Background::wait_for_end() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kBetweenLooks, [&] { return done_; }))
    check_stop();
}

void Background::wait() {
  wait_for_end();
  if (error_) std::rethrow_exception(error_);
}

}  // namespace walsh
