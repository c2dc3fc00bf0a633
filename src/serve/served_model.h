// Holds a loaded model with the threads, the scheduler and the service that answer requests for it.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "api/load.h"
#include "base/thread_pool.h"
#include "schedule/prefix_store.h"
#include "schedule/scheduler.h"
#include "serve/model_pool.h"
#include "serve/service.h"

namespace walsh {

struct ServedModelOptions {
  int threads = 0;  // the thread pool has this many threads; 0 means one per core
  std::function<LoadedModel(ThreadPool& pool)> load;
  // Opens the files of its prefixes; empty: it has none.
  std::function<std::unique_ptr<PrefixStore>(const LoadedModel& model)> open_store;
  SchedulerOptions scheduler;  // its drafts and its store are those of the model
  ServiceOptions service;
  OrderedJson template_variables = OrderedJson::object();
};

class ServedModel : public PooledModel {
 public:
  // Loads the model and begins to run its steps. Without a door the service makes its own.
  explicit ServedModel(const ServedModelOptions& options, std::shared_ptr<Door> door = nullptr,
                       std::shared_ptr<Metrics> metrics = nullptr);
  // Cancels unfinished texts, and waits until prefixes are in files.
  ~ServedModel() override;
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  Service& service() { return service_; }
  const Scheduler& scheduler() const { return scheduler_; }
  const LoadedModel& model() const { return model_; }

 private:
  void prepare() const;

  ThreadPool pool_;
  LoadedModel model_;
  const std::unique_ptr<PrefixStore> store_;  // may be null
  Scheduler scheduler_;
  Service service_;
  const std::shared_ptr<Metrics> metrics_;  // it may be null
  std::thread steps_, preparation_;
};

}  // namespace walsh
