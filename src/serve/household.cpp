#include "serve/household.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <map>
#include <utility>

#include "base/percent.h"
#include "serve/ollama_api.h"
#include "serve/openapi.h"
#include "serve/page.h"
#include "serve/service.h"
#include "walsh/version.h"

namespace walsh {
namespace {

// Keeps the model loaded until the answer has ended.
class LeasedReply : public HttpReply {
 public:
  LeasedReply(std::shared_ptr<HttpReply> reply, ModelLease lease)
      : lease_(std::move(lease)), reply_(std::move(reply)) {}

  void send(HttpResponse response) override { reply_->send(std::move(response)); }
  void start_events(HttpResponse response) override { reply_->start_events(std::move(response)); }
  void event(std::string text) override { reply_->event(std::move(text)); }
  void end_events() override { reply_->end_events(); }
  void on_gone(std::function<void()> gone) override { reply_->on_gone(std::move(gone)); }

 private:
  ModelLease lease_;
  std::shared_ptr<HttpReply> reply_;
};

Service& service_of(const ModelLease& lease) {
  return static_cast<ServedModel&>(*lease).service();
}

// Shortens a name that a client has sent, for a message.
std::string shown(const std::string& name) {
  constexpr size_t kLongest = 100;
  return name.size() <= kLongest ? name : name.substr(0, kLongest) + "...";
}

Json status_json(const ModelPool::Status& status) {
  Json json = {{"value", name_of(status.state)}};
  if (status.state == ModelState::failed) json["failed"] = true;
  if (status.state == ModelState::failed) json["error"] = status.error;
  return json;
}

}  // namespace

Household::Household(std::vector<ModelPlace> models, PoolOptions options, Load load,
                     DoorOptions door)
    : door_(std::make_shared<Door>(std::move(door))),
      started_(std::time(nullptr)),
      metrics_(models.size()),
      facts_(models.size()),
      pool_(std::move(models), with_load(std::move(options), std::move(load))) {
  for (auto& metrics : metrics_)
    metrics = std::make_shared<Metrics>();
}

PoolOptions Household::with_load(PoolOptions options, Load load) {
  options.load = [this, load = std::move(load)](const ModelPlace& place) {
    const size_t model = *pool_.find(place.name);
    std::unique_ptr<ServedModel> served = load(place, door_, metrics_[model]);
    const Service& service = served->service();
    Facts facts = {service.describe_model(), service.describe_to_ollama(),
                   service.describe_in_full()};
    const std::lock_guard lock(mutex_);
    facts_[model] = std::move(facts);
    return served;
  };
  return options;
}

Household::Own Household::own_endpoint(const std::string& path) {
  static const std::map<std::string_view, Own> all = {
      {"/", &Household::page},
      {"/health", &Household::health},
      {"/v1/health", &Household::health},
      {"/v1/models", &Household::models},
      {"/models/load", &Household::load},
      {"/models/unload", &Household::unload},
      {"/version", &Household::version},
      {"/openapi.json", &Household::openapi},
      {"/metrics", &Household::metrics},
      {"/api/tags", &Household::ollama_tags},
      {"/api/ps", &Household::ollama_running},
      {"/api/version", &Household::ollama_version},
  };
  if (path.starts_with("/v1/models/")) return &Household::model;
  const auto found = all.find(path);
  return found == all.end() ? nullptr : found->second;
}

void Household::handle(HttpRequest& request, const Reply& reply) {
  door_->let_in(request, reply, [&](const Route& route, const Reply& counted) {
    if (const Own own = own_endpoint(request.path)) return (this->*own)(request, counted);
    dispatch(route, request, counted);
  });
}

void Household::drain() {
  door_->drain();
  pool_.drain();
}

// Returns the model of a name. Ollama's clients may add the tag that it gives to models without
// one.
size_t Household::model_of(const std::string& name) const {
  constexpr std::string_view kLatest = ":latest";
  std::optional<size_t> model = pool_.find(name);
  if (!model && name.ends_with(kLatest))
    model = pool_.find(name.substr(0, name.size() - kLatest.size()));
  if (model) return *model;
  throw ApiError(404, "there is no model '" + shown(name) + "'", "model", "model_not_found");
}

size_t Household::chosen(const ModelChoice& choice) const {
  if (!choice.name.empty()) return model_of(choice.name);
  if (pool_.size() == 1) return 0;
  constexpr size_t kShown = 10;
  std::string names;
  for (size_t i = 0; i < std::min(kShown, pool_.size()); ++i)
    names += (i == 0 ? "" : ", ") + pool_.place(i).name;
  throw ApiError(400,
                 fmt::format("'model' must name one of the {} models of this server: {}{}",
                             pool_.size(), names, pool_.size() > kShown ? ", ..." : ""),
                 "model");
}

void Household::answer(const ModelLease& lease, const Route& route, const HttpRequest& request,
                       const Reply& reply) {
  service_of(lease).answer(route, request, std::make_shared<LeasedReply>(reply, lease));
}

void Household::dispatch(const Route& route, HttpRequest& request, const Reply& reply) {
  door_->refuse_if_draining();
  const ModelChoice choice = choice_of(request);
  if (request.path == "/props" && choice.name.empty() && pool_.size() > 1)
    return reply->send(json_response({{"role", "router"},
                                      {"build_info", fmt::format("walsh {}", kVersion)},
                                      {"models", pool_.size()}}));
  const size_t model = chosen(choice);
  if (request.path == "/api/show") {  // programs ask for this of all models that are listed
    const std::lock_guard lock(mutex_);
    if (!facts_[model].in_full.is_null()) return reply->send(json_response(facts_[model].in_full));
  }
  if (const ModelLease lease = pool_.take(model, choice.keep_seconds))
    return answer(lease, route, request, reply);
  std::string body = std::move(request.body);
  const auto held = std::make_shared<HttpRequest>(request);
  held->body = std::move(body);
  const uint64_t waiter = pool_.wait_for(
      model,
      {.ready =
           [&route, held, reply](const ModelLease& lease) {
             Door::guard(*held, reply, [&] { answer(lease, route, *held, reply); });
           },
       .failed = [held, reply](const ApiError& e) { reply->send(Door::error_for(*held, e)); },
       .bytes = held->body.size(),
       .keep_seconds = choice.keep_seconds});
  reply->on_gone([this, waiter] { pool_.forget(waiter); });
}

// Loads a model; the answer comes when it is loaded.
void Household::load(const HttpRequest& request, const Reply& reply) {
  door_->refuse_if_draining();
  const size_t model = chosen(choice_of(request));
  const auto loaded = [reply](const ModelLease&) {
    reply->send(json_response({{"success", true}}));
  };
  if (const ModelLease lease = pool_.take(model)) return loaded(lease);
  const auto failed = [reply](const ApiError& e) { reply->send(e.response()); };
  const uint64_t waiter = pool_.wait_for(model, {.ready = loaded, .failed = failed});
  reply->on_gone([this, waiter] { pool_.forget(waiter); });
}

// Unloads a model. It goes when its requests have ended; the answer does not wait for that.
void Household::unload(const HttpRequest& request, const Reply& reply) {
  pool_.unload(chosen(choice_of(request)));
  reply->send(json_response({{"success", true}}));
}

// Answers whether the server is well. Names of models are only for those who may use them.
void Household::health(const HttpRequest& request, const Reply& reply) {
  door_->refuse_if_draining();
  Json body = {{"status", "ok"}};
  if (door_->knows(request)) {
    body["loaded"] = Json::array();
    for (size_t i = 0; i < pool_.size(); ++i)
      if (pool_.status(i).state == ModelState::loaded)
        body["loaded"].push_back(pool_.place(i).name);
  }
  reply->send(json_response(body));
}

void Household::metrics(const HttpRequest&, const Reply& reply) {
  std::vector<ModelMetrics> all;
  ModelSamples loaded, loads, failures, bytes;
  for (size_t i = 0; i < pool_.size(); ++i) {
    const std::string& name = pool_.place(i).name;
    const ModelPool::Status status = pool_.status(i);
    SchedulerCounts counts;
    if (const ModelLease lease = pool_.look_at(i))
      counts = static_cast<ServedModel&>(*lease).scheduler().counts();
    all.push_back({name, metrics_[i].get(), metrics_[i]->with_kept(counts)});
    loaded.emplace_back(name, status.state == ModelState::loaded);
    loads.emplace_back(name, status.loads);
    failures.emplace_back(name, status.failures);
    bytes.emplace_back(name, status.bytes);
  }
  HttpResponse response;
  response.type = "text/plain; version=0.0.4";
  response.body = metrics_text(all, door_->responses());
  write_metric(response.body, "walsh:model_loaded", "gauge", "Whether the model is loaded", loaded);
  write_metric(response.body, "walsh:model_bytes", "gauge", "Memory planned for the loaded model",
               bytes);
  write_metric(response.body, "walsh:model_loads_total", "counter", "Times the model was loaded",
               loads);
  write_metric(response.body, "walsh:model_load_failures_total", "counter",
               "Times it could not be loaded", failures);
  reply->send(std::move(response));
}

Json Household::describe(size_t model) {
  const ModelPool::Status status = pool_.status(model);
  const std::lock_guard lock(mutex_);
  Json described = facts_[model].openai;
  if (described.is_null())
    described = {{"id", pool_.place(model).name},
                 {"object", "model"},
                 {"created", started_},
                 {"owned_by", "walsh"}};
  described["status"] = status_json(status);
  return described;
}

Json Household::describe_to_ollama(size_t model) {
  const std::lock_guard lock(mutex_);
  if (!facts_[model].ollama.is_null()) return facts_[model].ollama;
  const ModelPlace& place = pool_.place(model);
  return {{"name", place.name},
          {"model", place.name},
          {"modified_at", ollama_time(static_cast<double>(started_))},
          {"size", place.bytes},
          {"digest", ""},
          {"details",
           {{"parent_model", ""},
            {"format", "walsh"},
            {"family", ""},
            {"families", Json::array()},
            {"parameter_size", ""},
            {"quantization_level", ""}}}};
}

void Household::models(const HttpRequest&, const Reply& reply) {
  Json list = Json::array();
  for (size_t i = 0; i < pool_.size(); ++i)
    list.push_back(describe(i));
  reply->send(json_response({{"object", "list"}, {"data", std::move(list)}}));
}

void Household::model(const HttpRequest& request, const Reply& reply) {
  const std::string_view name =
      std::string_view(request.path).substr(std::string_view("/v1/models/").size());
  reply->send(json_response(describe(model_of(percent_decoded(name)))));
}

void Household::ollama_tags(const HttpRequest&, const Reply& reply) {
  Json list = Json::array();
  for (size_t i = 0; i < pool_.size(); ++i)
    list.push_back(describe_to_ollama(i));
  reply->send(json_response({{"models", std::move(list)}}));
}

void Household::ollama_running(const HttpRequest&, const Reply& reply) {
  Json list = Json::array();
  for (size_t i = 0; i < pool_.size(); ++i) {
    const ModelPool::Status status = pool_.status(i);
    const ModelLease lease = pool_.look_at(i);
    if (!lease) continue;
    Json model = service_of(lease).describe_running();
    if (status.keeps_seconds >= 0)
      model["expires_at"] =
          ollama_time(static_cast<double>(std::time(nullptr)) + status.keeps_seconds);
    list.push_back(std::move(model));
  }
  reply->send(json_response({{"models", std::move(list)}}));
}

void Household::ollama_version(const HttpRequest&, const Reply& reply) {
  reply->send(json_response({{"version", kOllamaVersion}}));
}

void Household::version(const HttpRequest&, const Reply& reply) {
  reply->send(json_response({{"version", kVersion}}));
}

// Answers with the description of the interface. The vocabularies differ, so token ids have no
// other limit than that of their type.
void Household::openapi(const HttpRequest&, const Reply& reply) {
  HttpResponse response;
  response.body = openapi_text(std::numeric_limits<int32_t>::max());
  reply->send(std::move(response));
}

void Household::page(const HttpRequest&, const Reply& reply) {
  reply->send(page_response());
}

}  // namespace walsh
