// Answers requests for several models behind one port. The field "model" of a request chooses, and
// models are loaded and unloaded as they are used (model_pool.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "io/json.h"
#include "serve/door.h"
#include "serve/http.h"
#include "serve/model_choice.h"
#include "serve/model_pool.h"
#include "serve/served_model.h"

namespace walsh {

class Household {
 public:
  // Loads a model with a service of this door, which counts in these metrics.
  using Load = std::function<std::unique_ptr<ServedModel>(
      const ModelPlace& place, std::shared_ptr<Door> door, std::shared_ptr<Metrics> metrics)>;
  // Serves these models; options.load is not used. Throws what ModelPool throws.
  Household(std::vector<ModelPlace> models, PoolOptions options, Load load, DoorOptions door);

  // These are callbacks for HttpServer, and thread-safe.
  HttpAdmission admit(HttpRequest& request) { return door_->admit(request); }
  void handle(HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  HttpResponse error_body(int status, const std::string& message, const HttpRequest& request) {
    return door_->error_body(status, message, request);
  }

  // Loads and unloads models until drain().
  void run() { pool_.run(); }
  // Refuses new work, and answers all requests that wait for a model.
  void drain();

 private:
  using Reply = std::shared_ptr<HttpReply>;
  // These are endpoints of the whole server.
  using Own = void (Household::*)(const HttpRequest& request, const Reply& reply);
  static Own own_endpoint(const std::string& path);

  PoolOptions with_load(PoolOptions options, Load load);
  size_t model_of(const std::string& name) const;
  size_t chosen(const ModelChoice& choice) const;
  void dispatch(const Route& route, HttpRequest& request, const Reply& reply);
  static void answer(const ModelLease& lease, const Route& route, const HttpRequest& request,
                     const Reply& reply);
  Json describe(size_t model);
  Json describe_to_ollama(size_t model);

  void health(const HttpRequest& request, const Reply& reply);
  void metrics(const HttpRequest& request, const Reply& reply);
  void models(const HttpRequest& request, const Reply& reply);
  void model(const HttpRequest& request, const Reply& reply);
  void load(const HttpRequest& request, const Reply& reply);
  void unload(const HttpRequest& request, const Reply& reply);
  void openapi(const HttpRequest& request, const Reply& reply);
  void page(const HttpRequest& request, const Reply& reply);
  void version(const HttpRequest& request, const Reply& reply);
  void ollama_tags(const HttpRequest& request, const Reply& reply);
  void ollama_running(const HttpRequest& request, const Reply& reply);
  void ollama_version(const HttpRequest& request, const Reply& reply);

  // Holds the facts of a model that are known since it was loaded for the first time.
  struct Facts {
    Json openai, ollama, in_full;
  };

  const std::shared_ptr<Door> door_;
  const int64_t started_;
  std::vector<std::shared_ptr<Metrics>> metrics_;  // each model has some
  std::mutex mutex_;                               // it guards what follows
  std::vector<Facts> facts_;
  // This is the last member, because its models use the others.
  ModelPool pool_;
};

}  // namespace walsh
