#include "serve/door.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <new>

#include "io/error_output.h"
#include "io/json.h"
#include "io/sha256.h"
#include "serve/messages_api.h"
#include "serve/ollama_api.h"
#include "serve/routes.h"
#include "walsh/stop.h"

namespace walsh {
namespace {

// Compares two texts in a time that does not depend on where the texts differ.
bool equal_secrets(std::string_view a, std::string_view b) {
  unsigned char different = a.size() != b.size();
  for (size_t i = 0; i < b.size(); ++i)
    different |= static_cast<unsigned char>((i < a.size() ? a[i] : 0) ^ b[i]);
  return different == 0;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// Returns Host without its port, in lower case, without the dot that a fully qualified name may end
// with.
std::string host_name(std::string_view host) {
  const size_t end = host.starts_with('[') ? host.find(']') + 1 : host.find(':');
  std::string name = lower_case(host.substr(0, end));
  if (name.ends_with('.')) name.pop_back();
  return name;
}

bool is_address(const std::string& name) {
  if (name.starts_with('[')) return true;
  return !name.empty() && name.find_first_not_of("0123456789.") == std::string::npos;
}

// Converts an error for clients of Anthropic's API or Ollama's.
HttpResponse in_form_of(const HttpRequest& request, HttpResponse error) {
  const auto translate = request.path.starts_with("/v1/messages") ? messages_error
                         : request.path.starts_with("/api/")      ? ollama_error
                                                                  : nullptr;
  if (translate != nullptr)
    error.body = format_json(translate(parse_json(error.body, "error")), -1);
  return error;
}

std::vector<std::string> names_of(const std::vector<std::string>& keys) {
  std::vector<std::string> names = {""};  // Requests without a key have the empty name.
  for (const std::string& key : keys)
    names.push_back(hex(sha256("API key " + key)));
  return names;
}

bool has_body(const HttpRequest& request) {
  return !request.header("transfer-encoding").empty() ||
         request.header("content-length").find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

// Wraps a reply to count every answer, add the headers for other origins, and log it at its end.
class Door::CountedReply : public HttpReply {
 public:
  CountedReply(std::shared_ptr<HttpReply> reply, Door& door, const HttpRequest& request,
               HttpResponse origin)
      : record(std::make_shared<RequestRecord>(request)),
        reply_(std::move(reply)),
        door_(door),
        origin_(std::move(origin)) {}
  ~CountedReply() override { door_.log_.add(*record); }

  void send(HttpResponse response) override {
    record->whole = true;
    reply_->send(count(std::move(response)));
  }
  void start_events(HttpResponse response) override {
    reply_->start_events(count(std::move(response)));
  }
  void event(std::string text) override { reply_->event(std::move(text)); }
  void end_events() override {
    record->whole = true;
    reply_->end_events();
  }
  void on_gone(std::function<void()> gone) override { reply_->on_gone(std::move(gone)); }

  const std::shared_ptr<RequestRecord> record;

 private:
  HttpResponse count(HttpResponse response) {
    door_.count(response.status);
    record->status = response.status;
    response.headers.insert(origin_.headers.begin(), origin_.headers.end());
    return response;
  }

  std::shared_ptr<HttpReply> reply_;
  Door& door_;
  HttpResponse origin_;
};

Door::Door(DoorOptions options)
    : options_(std::move(options)),
      key_names_(names_of(options_.api_keys)),
      log_(options_.log,
           [](const std::string& lines) { write_error_output(lines, std::chrono::hours(24)); }) {}

void Door::count(int status) {
  const std::lock_guard lock(mutex_);
  ++responses_[status];
}

std::map<int, uint64_t> Door::responses() const {
  const std::lock_guard lock(mutex_);
  return responses_;
}

void Door::log_whole(const HttpRequest& request, int status) {
  count(status);
  RequestRecord record(request);
  record.status = status;
  record.whole = true;
  log_.add(record);
}

void Door::refuse_if_draining() const {
  if (draining_) throw ApiError(503, "the server is shutting down");
}

HttpResponse Door::error_for(const HttpRequest& request, const ApiError& error) {
  HttpResponse response = error.response();
  if (error.status() == 405) response.headers["Allow"] += methods_of(request.path);
  return in_form_of(request, std::move(response));
}

HttpResponse Door::error_body(int status, const std::string& message, const HttpRequest& request) {
  log_whole(request, status);
  return in_form_of(request, error_response(status, message));
}

// Checks the name of the server, to prevent DNS rebinding, by which another site's name resolves to
// this server. A request with HTTP/1.0 and no Host, as health checks send, does not come from a
// browser.
void Door::check_host(const HttpRequest& request) const {
  if (!request.headers.contains("host")) return;
  const std::string name = host_name(request.header("host"));
  if (name.empty()) throw ApiError(403, "the Host field is empty");
  if (name == "localhost" || is_address(name)) return;
  if (std::find(options_.hosts.begin(), options_.hosts.end(), name) != options_.hosts.end()) return;
  throw ApiError(403, fmt::format("'{0}' is not a name of this server: if it should be, start it "
                                  "with --allowed-hosts {0}",
                                  name));
}

size_t Door::key_of(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return 0;
  constexpr std::string_view kScheme = "bearer ";
  std::string_view given = request.header("authorization");
  if (lower_case(given.substr(0, kScheme.size())) == kScheme) {
    given.remove_prefix(kScheme.size());
  } else {
    given = request.header("x-api-key");
  }
  size_t known = 0;
  for (size_t i = 0; i < options_.api_keys.size(); ++i)
    if (equal_secrets(given, options_.api_keys[i]) && known == 0) known = i + 1;
  return known;
}

// Refuses requests of other sites' pages, although such a page could not read the answer.
void Door::check_origin(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || allows_origin(origin)) return;
  const size_t scheme = origin.find("://");
  if (scheme != origin.npos && origin.substr(scheme + 3) == request.header("host")) return;
  throw ApiError(403,
                 fmt::format("pages of '{0}' may not use this server: if they should, start it "
                             "with --cors-origins {0}",
                             origin));
}

bool Door::allows_origin(std::string_view origin) const {
  const auto& all = options_.origins;
  return std::any_of(all.begin(), all.end(),
                     [&](const std::string& one) { return one == "*" || one == origin; });
}

void Door::add_origin(const HttpRequest& request, HttpResponse& response) const {
  const std::string origin(request.header("origin"));
  if (origin.empty() || !allows_origin(origin)) return;
  response.headers["Access-Control-Allow-Origin"] = origin;
  response.headers["Vary"] = "Origin";
}

// Answers a browser's preflight request, and one about the whole server (OPTIONS *). JavaScript
// clients add headers of their own, which have no effect, so an allowed page may send any.
HttpResponse Door::preflight(const HttpRequest& request) const {
  HttpResponse allowed{204, "", "", {}};
  allowed.headers["Allow"] = "GET, POST, OPTIONS";
  allowed.headers["Access-Control-Allow-Methods"] = "GET, POST, OPTIONS";
  const std::string_view asked = request.header("access-control-request-headers");
  const bool any = !asked.empty() && allows_origin(request.header("origin"));
  allowed.headers["Access-Control-Allow-Headers"] =
      any ? asked : "authorization, content-type, x-api-key";
  allowed.headers["Vary"] = "Origin, Access-Control-Request-Headers";
  return allowed;
}

// Returns the request's route, or null for a preflight. Throws ApiError if the request is not
// allowed.
const Route* Door::checked(const HttpRequest& request) const {
  check_host(request);
  if (request.method == "OPTIONS" && (request.path == "*" || !options_.origins.empty()))
    return nullptr;
  check_origin(request);
  const Route& route = route_of(request);
  if (!route.open && !knows(request)) throw ApiError(401, "a valid API key is needed");
  return &route;
}

// Decides about a request. Unauthorized ones are refused before their body is read.
HttpAdmission Door::admit(HttpRequest& request) {
  set_route(request);
  try {
    checked(request);
    const bool known = knows(request);
    // Paths that need no key need no body either, and bodies that are held keep others out.
    if (!known && has_body(request))
      throw ApiError(401, "a valid API key is needed to send a body");
    return {std::nullopt, known};
  } catch (const ApiError& e) {
    HttpResponse refusal = error_for(request, e);
    add_origin(request, refusal);
    log_whole(request, refusal.status);
    return {std::move(refusal), false};
  }
}

void Door::tell_errors(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply,
                       const std::function<void()>& handler) {
  try {
    handler();
  } catch (const ApiError& e) {
    reply->send(error_for(request, e));
  } catch (const Error& e) {
    reply->send(error_for(request, api_error(e)));
  } catch (const std::bad_alloc&) {  // others may need less memory, or it may be free later
    reply->send(error_for(request, ApiError(503, "there is not enough memory for this request")));
  }
}

void Door::guard(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply,
                 const std::function<void()>& handler) {
  tell_errors(request, reply, [&] {
    const auto gone = std::make_shared<std::atomic<bool>>(false);
    reply->on_gone([gone] { *gone = true; });
    const StopScope while_it_is_there(*gone);
    handler();
  });
}

void Door::let_in(HttpRequest& request, const std::shared_ptr<HttpReply>& plain,
                  const Answer& answer) {
  set_route(request);
  HttpResponse origin;
  add_origin(request, origin);
  const auto reply = std::make_shared<CountedReply>(plain, *this, request, std::move(origin));
  request.record = reply->record;
  tell_errors(request, reply, [&] {
    const Route* route = checked(request);
    if (route == nullptr) return reply->send(preflight(request));
    // A request that is answered at once is not stopped when its client leaves.
    if (route->turn == HttpTurn::at_once) return answer(*route, reply);
    guard(request, reply, [&] { answer(*route, reply); });
  });
}

}  // namespace walsh
