#include "serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <ctime>
#include <new>

#include "io/error_output.h"
#include "io/json.h"
#include "serve/api_error.h"
#include "serve/completion.h"
#include "serve/known_fields.h"
#include "serve/messages_api.h"
#include "serve/ordered_fields.h"
#include "walsh/stop.h"

namespace walsh {
namespace {

// Compares in a time that does not depend on where the texts differ.
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

// Wraps a reply to count every answer, add the headers for other origins, and log it at its end.
class CountedReply : public HttpReply {
 public:
  CountedReply(std::shared_ptr<HttpReply> reply, Metrics& metrics, RequestLog& log,
               const HttpRequest& request, HttpResponse origin)
      : record(std::make_shared<RequestRecord>(request)),
        reply_(std::move(reply)),
        metrics_(metrics),
        log_(log),
        origin_(std::move(origin)) {}
  ~CountedReply() override { log_.add(*record); }

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
    metrics_.response(response.status);
    record->status = response.status;
    response.headers.insert(origin_.headers.begin(), origin_.headers.end());
    return response;
  }

  std::shared_ptr<HttpReply> reply_;
  Metrics& metrics_;
  RequestLog& log_;
  HttpResponse origin_;
};

// Converts an error for clients of Anthropic's API or Ollama's.
HttpResponse in_form_of(const HttpRequest& request, HttpResponse error) {
  const auto translate = request.path.starts_with("/v1/messages") ? messages_error
                         : request.path.starts_with("/api/")      ? ollama_error
                                                                  : nullptr;
  if (translate != nullptr)
    error.body = format_json(translate(parse_json(error.body, "error")), -1);
  return error;
}

bool has_body(const HttpRequest& request) {
  return !request.header("transfer-encoding").empty() ||
         request.header("content-length").find_first_not_of('0') != std::string_view::npos;
}

bool fits(std::string_view route, std::string_view path) {
  if (!route.ends_with('*')) return route == path;
  return path.starts_with(route.substr(0, route.size() - 1)) && path.size() >= route.size();
}

std::optional<Reranker> find_reranker(const LoadedModel& model, const ServiceOptions& options) {
  const bool named = Reranker::is_named(options.model_name) || Reranker::is_named(model.path);
  if (!options.reranker && !named) return std::nullopt;
  std::optional<Reranker> reranker = Reranker::of(model);
  if (!reranker && options.reranker)
    throw Error(ErrorCode::usage, "--reranker",
                model.path + " lacks tokens of its prompt: yes, no, <|im_start|> and <|im_end|>");
  return reranker;
}

}  // namespace

Service::Service(const LoadedModel& model, Scheduler& scheduler, ServiceOptions options,
                 ChatPrompt chat)
    : model_(model),
      scheduler_(scheduler),
      options_(std::move(options)),
      chat_(std::move(chat)),
      reranker_(find_reranker(model, options_)),
      tokens_(model.tokenizer),
      log_(options_.log,
           [](const std::string& lines) { write_error_output(lines, std::chrono::hours(24)); }),
      started_(std::time(nullptr)) {}

const std::vector<Service::Route>& Service::routes() {
  static const std::vector<Route> all = {
      {"GET", "/", &Service::page, true},
      {"GET", "/health", &Service::health, true, HttpTurn::at_once},
      {"GET", "/v1/health", &Service::health, true, HttpTurn::at_once},
      {"GET", "/v1/models", &Service::models, false},
      {"GET", "/v1/models/*", &Service::model, false},
      {"GET", "/props", &Service::props, false},
      {"GET", "/version", &Service::version, false},
      {"GET", "/openapi.json", &Service::openapi, true},
      {"POST", "/v1/responses", &Service::responses, false},
      {"POST", "/v1/messages", &Service::messages, false},
      {"POST", "/v1/messages/count_tokens", &Service::count_tokens, false, HttpTurn::one_by_one},
      {"POST", "/v1/completions", &Service::completions, false},
      {"POST", "/v1/chat/completions", &Service::chat, false},
      {"POST", "/v1/chat/completions/input_tokens", &Service::chat_tokens, false,
       HttpTurn::one_by_one},
      {"POST", "/v1/embeddings", &Service::embeddings, false},
      {"POST", "/embedding", &Service::llama_embedding, false},
      {"POST", "/api/embed", &Service::ollama_embed, false},
      {"POST", "/api/embeddings", &Service::ollama_embeddings, false},
      {"POST", "/v1/rerank", &Service::rerank, false},
      {"POST", "/v1/reranking", &Service::rerank, false},
      {"POST", "/v2/rerank", &Service::rerank, false},
      {"POST", "/tokenize", &Service::tokenize, false, HttpTurn::one_by_one},
      {"POST", "/detokenize", &Service::detokenize, false, HttpTurn::one_by_one},
      {"POST", "/apply-template", &Service::apply_template, false, HttpTurn::one_by_one},
      {"GET", "/metrics", &Service::metrics, false, HttpTurn::at_once},
      {"POST", "/completion", &Service::llama_completion, false},
      {"POST", "/infill", &Service::llama_infill, false},
      {"POST", "/api/chat", &Service::ollama_chat, false},
      {"POST", "/api/generate", &Service::ollama_generate, false},
      {"GET", "/api/tags", &Service::ollama_tags, false},
      {"GET", "/api/ps", &Service::ollama_running, false},
      {"POST", "/api/show", &Service::ollama_show, false},
      {"GET", "/api/version", &Service::ollama_version, false},
  };
  return all;
}

// Accepts paths without /v1 and with a trailing slash, which misconfigured clients send.
void Service::set_route(HttpRequest& request) {
  std::string& path = request.path;
  while (path.size() > 1 && path.ends_with('/'))
    path.pop_back();
  const auto known = [](const std::string& name) {
    return std::any_of(routes().begin(), routes().end(),
                       [&](const Route& route) { return fits(route.path, name); });
  };
  if (!known(path) && known("/v1" + path)) path = "/v1" + path;
}

HttpResponse Service::error_for(const HttpRequest& request, const ApiError& error) {
  HttpResponse response = error.response();
  if (error.status() == 405) {
    std::string& methods = response.headers["Allow"];
    for (const Route& route : routes())
      if (fits(route.path, request.path))
        methods +=
            (methods.empty() ? "" : ", ") +
            std::string(std::string_view(route.method) == "GET" ? "GET, HEAD" : route.method);
  }
  return in_form_of(request, std::move(response));
}

HttpTurn Service::turn_of(const HttpRequest& request) {
  // It takes more than a few milliseconds to parse bodies of this size.
  constexpr size_t kLongBody = size_t{128} << 10;
  const bool is_long = request.body.size() > kLongBody;
  for (const Route& route : routes())
    if (request.path == route.path && (route.turn != HttpTurn::handlers || !is_long))
      return route.turn;
  return is_long ? HttpTurn::long_bodies : HttpTurn::handlers;
}

HttpResponse Service::error_body(int status, const std::string& message,
                                 const HttpRequest& request) {
  metrics_.response(status);
  RequestRecord record(request);
  record.status = status;
  record.whole = true;
  log_.add(record);
  return in_form_of(request, error_response(status, message));
}

const Service::Route& Service::route_of(const HttpRequest& request) const {
  bool other_method = false;
  for (const Route& route : routes()) {
    const std::string_view path = route.path;
    if (!fits(path, request.path)) continue;
    if (request.method == route.method || (request.method == "HEAD" && route.method[0] == 'G'))
      return route;
    other_method = true;
  }
  if (other_method) throw ApiError(405, request.path + " does not take " + request.method);
  throw ApiError(404, "there is no " + request.path);
}

// Prevents DNS rebinding, where another site's name resolves to this server. A request with
// HTTP/1.0 and no Host, as health checks send, does not come from a browser.
void Service::check_host(const HttpRequest& request) const {
  if (!request.headers.contains("host")) return;
  const std::string name = host_name(request.header("host"));
  if (name.empty()) throw ApiError(403, "the Host field is empty");
  if (name == "localhost" || is_address(name)) return;
  if (std::find(options_.hosts.begin(), options_.hosts.end(), name) != options_.hosts.end()) return;
  throw ApiError(403, fmt::format("'{0}' is not a name of this server: if it should be, start it "
                                  "with --allowed-hosts {0}",
                                  name));
}

size_t Service::key_of(const HttpRequest& request) const {
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

// Returns the owner of a request's cached prefixes: its key and, as in vLLM, the salt that it
// names. Requests of different owners share neither prefixes nor compiled grammars, because the
// number of cached tokens and the times would tell one how much of a guess is a prompt or a schema
// of the other.
std::string Service::owner_of(const HttpRequest& request, const OrderedJson& body) const {
  std::string salt;
  if (const OrderedJson* given = find_value(body, "cache_salt")) {
    if (!given->is_string() || *given == "") refuse_value("cache_salt", "a non-empty string");
    salt = given->get<std::string>();
  }
  return fmt::format("{} {}", key_of(request), salt);
}

// Pages of other sites can send requests without reading the answers; even that is refused.
void Service::check_origin(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || allows_origin(origin)) return;
  const size_t scheme = origin.find("://");
  if (scheme != origin.npos && origin.substr(scheme + 3) == request.header("host")) return;
  throw ApiError(403,
                 fmt::format("pages of '{0}' may not use this server: if they should, start it "
                             "with --cors-origins {0}",
                             origin));
}

bool Service::allows_origin(std::string_view origin) const {
  const auto& all = options_.origins;
  return std::any_of(all.begin(), all.end(),
                     [&](const std::string& one) { return one == "*" || one == origin; });
}

void Service::add_origin(const HttpRequest& request, HttpResponse& response) const {
  const std::string origin(request.header("origin"));
  if (origin.empty() || !allows_origin(origin)) return;
  response.headers["Access-Control-Allow-Origin"] = origin;
  response.headers["Vary"] = "Origin";
}

// Answers a browser's preflight request, and one about the whole server (OPTIONS *). JavaScript
// clients add headers of their own, which have no effect, so an allowed page may send any.
HttpResponse Service::preflight(const HttpRequest& request) const {
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

const Service::Route* Service::checked(const HttpRequest& request) const {
  check_host(request);
  if (request.method == "OPTIONS" && (request.path == "*" || !options_.origins.empty()))
    return nullptr;
  check_origin(request);
  const Route& route = route_of(request);
  if (!route.open && !options_.api_keys.empty() && key_of(request) == 0)
    throw ApiError(401, "a valid API key is needed");
  return &route;
}

// Unauthorized requests are refused before their body is read.
HttpAdmission Service::admit(HttpRequest& request) {
  set_route(request);
  try {
    checked(request);
    const bool known = options_.api_keys.empty() || key_of(request) != 0;
    // Paths that need no key need no body either, and bodies that are held keep others out.
    if (!known && has_body(request))
      throw ApiError(401, "a valid API key is needed to send a body");
    return {std::nullopt, known};
  } catch (const ApiError& e) {
    HttpResponse refusal = error_for(request, e);
    add_origin(request, refusal);
    metrics_.response(refusal.status);
    RequestRecord record(request);
    record.status = refusal.status;
    record.whole = true;
    log_.add(record);
    return {std::move(refusal), false};
  }
}

void Service::handle(HttpRequest& request, const std::shared_ptr<HttpReply>& plain) {
  set_route(request);
  HttpResponse origin;
  add_origin(request, origin);
  const auto reply =
      std::make_shared<CountedReply>(plain, metrics_, log_, request, std::move(origin));
  request.record = reply->record;
  try {
    const Route* route = checked(request);
    if (route == nullptr) return reply->send(preflight(request));
    if (route->turn == HttpTurn::at_once) return (this->*route->handler)(request, reply);
    const auto gone = std::make_shared<std::atomic<bool>>(false);
    reply->on_gone([gone] { *gone = true; });
    const StopScope while_it_is_there(*gone);
    (this->*route->handler)(request, reply);
  } catch (const ApiError& e) {
    reply->send(error_for(request, e));
  } catch (const Error& e) {
    reply->send(error_for(request, api_error(e)));
  } catch (const std::bad_alloc&) {  // others may need less memory, or it may be free later
    reply->send(error_for(request, ApiError(503, "there is not enough memory for this request")));
  }
}

void Service::health(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
  if (draining_) throw ApiError(503, "the server is shutting down");
  reply->send(json_response({{"status", "ok"}}));
}

void Service::start(CompletionRequest wanted, const HttpRequest& request,
                    const std::shared_ptr<HttpReply>& reply) {
  if (draining_) throw ApiError(503, "the server is shutting down");
  const auto completion =
      std::make_shared<Completion>(std::move(wanted), model_.tokenizer, tokens_, metrics_, reply,
                                   request.record, options_.model_name);
  completion->start(scheduler_);
}

// The limits allow for what a normalizer may remove from short texts.
PromptLimits Service::prompt_limits() const {
  constexpr uint64_t kLeastBytes = uint64_t{64} << 10;
  const auto positions = static_cast<uint64_t>(scheduler_.positions());
  return {scheduler_.positions(), std::max(kLeastBytes, positions * tokens_.longest())};
}

OrderedJson Service::read_body(const HttpRequest& request) {
  OrderedJson body = parse_ordered_body(request.body);
  metrics_.ignored(ignored_fields(request.path, body));
  return body;
}

void Service::completions(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const OrderedJson body = read_body(request);
  auto completion =
      parse_completion(body, model_, prompt_limits(), options_.sampling, owner_of(request, body));
  // Prompts that are texts begin with BOS: a client that makes the tokens itself may leave it out.
  const std::optional<int32_t> bos = model_.tokenizer.added_bos();
  request.record->lacks_bos =
      bos && std::any_of(completion.prompts.begin(), completion.prompts.end(),
                         [&](const auto& p) { return p.front() != *bos; });
  start(std::move(completion), request, reply);
}

std::string Service::chat_prompt(OrderedJson& body) const {
  if (!chat_)
    throw ApiError(400, "the model has no chat template: use /v1/completions", "messages");
  return chat_(body);
}

void Service::chat(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  answer_chat(request, read_body(request), reply);
}

void Service::answer_chat(const HttpRequest& request, OrderedJson body,
                          const std::shared_ptr<HttpReply>& reply) {
  const std::string prompt = chat_prompt(body);
  auto completion =
      parse_chat(body, model_, prompt_limits(), options_.sampling, owner_of(request, body), prompt);
  start(std::move(completion), request, reply);
}

void Service::metrics(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
  HttpResponse response;
  response.type = "text/plain; version=0.0.4";
  response.body = metrics_.text(scheduler_.counts());
  reply->send(std::move(response));
}

}  // namespace walsh
