// Keeps the models of a server: one is loaded when a request asks for it, and unloaded when it was
// not used for a while or when another one needs its memory, never while requests run on it.
//
// Requests for a model that is not loaded wait, and get it together. Models are loaded one after
// the other, in the order in which they were asked for. Where memory is missing, the least recently
// used idle model goes first. If all that are loaded have requests, the least recently used one
// takes no more of them: they wait until the model that needs the room has been served, so that
// nobody is kept out for good.
//
// Sources: what Ollama's scheduler, llama-swap and the router of llama.cpp's server do.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serve/api_error.h"
#include "weights/model_folder.h"

namespace walsh {

// This is what the pool keeps of a loaded model.
class PooledModel {
 public:
  virtual ~PooledModel() = default;
};

// The model stays loaded as long as somebody has a lease of it. The pool must outlive leases.
using ModelLease = std::shared_ptr<PooledModel>;

enum class ModelState : uint8_t { unloaded, loading, loaded, failed };
const char* name_of(ModelState state);

struct PoolOptions {
  // Returns the memory that a model will need; throws as `load`.
  std::function<uint64_t(const ModelPlace&)> plan;
  std::function<std::unique_ptr<PooledModel>(const ModelPlace&)> load;
  std::function<double()> clock;                      // in seconds; empty: the machine's
  std::function<void(const std::string& what)> tell;  // for a log; may be empty
  uint64_t most_bytes = UINT64_MAX;                   // of all loaded models together
  double keep_seconds = 300;     // an unused model is unloaded after this time; below 0: never
  double patience_seconds = 60;  // a model waits so long for requests on others to end
  size_t waiting = 256;          // requests that may wait for models, at most
  uint64_t waiting_bytes = uint64_t{128} << 20;  // of all of them together
};

class ModelPool {
 public:
  // Throws usage for two models of one name.
  ModelPool(std::vector<ModelPlace> places, PoolOptions options);
  // Unloads all models.
  ~ModelPool();
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  // A request that waits for a model. One of the two is called, once: on the thread that loads, or
  // on that of forget() or drain().
  struct Waiter {
    std::function<void(ModelLease lease)> ready;
    std::function<void(const ApiError& error)> failed;
    uint64_t bytes = 0;  // that it holds
    // The model stays loaded for this time after the request instead of the pool's.
    std::optional<double> keep_seconds = {};
  };

  // All functions up to drain() are thread-safe and do not block.
  size_t size() const { return entries_.size(); }
  const ModelPlace& place(size_t model) const { return entries_[model].place; }
  // Returns the number of a model; nothing if there is none of this name.
  std::optional<size_t> find(const std::string& name) const;
  // Returns a lease if the model is loaded and takes requests; null otherwise.
  ModelLease take(size_t model, std::optional<double> keep_seconds = {});
  // Returns a lease of a loaded model that does not count as use; null if it is not loaded.
  ModelLease look_at(size_t model);
  // Lets a request wait for the model. Returns a number for forget(). Throws ApiError 429 or 503 if
  // too many wait or the pool is draining; then neither function of the waiter is called.
  uint64_t wait_for(size_t model, Waiter waiter);
  void forget(uint64_t waiter);
  // Unloads the model as soon as no request runs on it.
  void unload(size_t model);

  struct Status {
    ModelState state = ModelState::unloaded;
    std::string error;         // why it could not be loaded
    uint64_t bytes = 0;        // that it needs, if it is loaded
    int64_t requests = 0;      // that run on it
    double keeps_seconds = 0;  // until it is unloaded; below 0: it stays
    uint64_t loads = 0, failures = 0;
  };
  Status status(size_t model) const;

  // Does one thing that is due: unloads a model or makes one ready. Returns false if there is
  // nothing to do for now. Not thread-safe.
  bool step();
  // Calls step() until drain().
  void run();
  // Answers all that wait with an error, stops a load, loads no more; loaded models stay.
  void drain();

 private:
  struct Entry {
    ModelPlace place;
    ModelState state = ModelState::unloaded;
    std::unique_ptr<PooledModel> model;
    int64_t requests = 0, looks = 0;  // leases
    double used = 0, keep = 0;        // when a request ended last, and how long it stays then
    uint64_t bytes = 0;               // of the loaded model
    std::optional<uint64_t> planned;  // of one that is to be loaded
    std::optional<double> blocked;    // since when it waits for others to go
    bool gives_way = false;           // another one needs its room
    bool dismissed = false;           // it was asked to go
    std::string error;
    uint64_t loads = 0, failures = 0;

    bool takes_requests() const { return model && !gives_way && !dismissed; }
    bool idle() const { return model && requests == 0 && looks == 0; }
  };
  struct Waiting {
    uint64_t id;
    size_t model;
    Waiter waiter;
  };
  using Lock = std::unique_lock<std::mutex>;

  double now() const;
  bool has_waiting(size_t model) const;
  ModelLease lease(size_t model, bool counts);
  void end_lease(size_t model, bool counts);
  std::vector<Waiter> take_waiting(size_t model);
  bool unload_due(Lock& lock);
  void unload_now(Lock& lock, Entry& entry, const char* why);
  Entry* least_recently_used(bool idle);
  uint64_t loaded_bytes() const;
  bool make_ready(Lock& lock, size_t wanted);
  bool make_room(Lock& lock, size_t wanted);
  void load_now(Lock& lock, size_t wanted);
  void fail(Lock& lock, size_t model, const ApiError& error);
  bool serve_waiting(Lock& lock);
  void tell(Lock& lock, const std::string& what) const;

  const PoolOptions options_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Entry> entries_;  // their places are constant
  std::deque<Waiting> waiting_;
  uint64_t waiting_bytes_ = 0, next_id_ = 1, events_ = 0;
  std::atomic<bool> draining_ = false;  // also stops a load
};

}  // namespace walsh
