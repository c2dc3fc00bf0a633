#include "base/stop.h"

#include "walsh/error.h"

namespace walsh {
namespace {

thread_local const std::atomic<bool>* t_flag = nullptr;

}  // namespace

StopScope::StopScope(const std::atomic<bool>& flag) : outer_(t_flag) {
  t_flag = &flag;
}

StopScope::~StopScope() {
  t_flag = outer_;
}

const std::atomic<bool>* stop_flag() {
  return t_flag;
}

void throw_stopped() {
  throw Error(ErrorCode::interrupted, "", "stopped by the user");
}

namespace detail {

void set_stop_flag(const std::atomic<bool>* flag) {
  t_flag = flag;
}

}  // namespace detail
}  // namespace walsh
