// Stands in front of all endpoints of a port. It decides who may send requests, answers those that
// are refused, and counts and logs every answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api_error.h"
#include "serve/http.h"
#include "serve/request_log.h"

namespace walsh {

struct Route;

struct DoorOptions {
  std::vector<std::string> api_keys;  // if there are none, no key is needed
  // Host may have these values besides localhost and IP addresses.
  std::vector<std::string> hosts;
  // Browsers may send requests from these origins; "*" stands for all.
  std::vector<std::string> origins;
  LogFormat log = LogFormat::off;  // the request log on standard error has this format
};

class Door {
 public:
  explicit Door(DoorOptions options);

  // Decides about a request whose header was read (HttpAdmit).
  HttpAdmission admit(HttpRequest& request);
  // Calls `answer` with the route of a request that is allowed and with a reply that is counted and
  // logged. An exception that it throws becomes the answer, as in guard().
  using Answer = std::function<void(const Route& route, const std::shared_ptr<HttpReply>& reply)>;
  void let_in(HttpRequest& request, const std::shared_ptr<HttpReply>& reply, const Answer& answer);
  // Calls `handler`, which is stopped when the client leaves. An exception that it throws
  // becomes the answer, in the form of the interface that the request belongs to.
  static void guard(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply,
                    const std::function<void()>& handler);
  static HttpResponse error_for(const HttpRequest& request, const ApiError& error);
  // Makes the answer for an error outside a handler (HttpErrorBody).
  HttpResponse error_body(int status, const std::string& message, const HttpRequest& request);

  // Returns the number of the request's key, counted from 1, or 0 if it has no valid key.
  size_t key_of(const HttpRequest& request) const;
  // Returns a name of the request's key that may stand in files: it is the same after a restart,
  // and the key cannot be found from it. It is empty for requests without a valid key.
  const std::string& key_name(const HttpRequest& request) const {
    return key_names_[key_of(request)];
  }
  // Returns whether the request may see what needs a key.
  bool knows(const HttpRequest& request) const {
    return options_.api_keys.empty() || key_of(request) != 0;
  }

  // Refuses new work from now on.
  void drain() { draining_ = true; }
  bool draining() const { return draining_; }
  void refuse_if_draining() const;  // it throws ApiError 503

  std::map<int, uint64_t> responses() const;  // it counts the answers by their status

 private:
  class CountedReply;

  static void tell_errors(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply,
                          const std::function<void()>& handler);
  void check_host(const HttpRequest& request) const;
  void check_origin(const HttpRequest& request) const;
  bool allows_origin(std::string_view origin) const;
  const Route* checked(const HttpRequest& request) const;
  HttpResponse preflight(const HttpRequest& request) const;
  void add_origin(const HttpRequest& request, HttpResponse& response) const;
  void count(int status);
  void log_whole(const HttpRequest& request, int status);

  const DoorOptions options_;
  const std::vector<std::string> key_names_;  // key_of() is their index.
  RequestLog log_;
  std::atomic<bool> draining_ = false;
  mutable std::mutex mutex_;  // it guards what follows
  std::map<int, uint64_t> responses_;
};

}  // namespace walsh
