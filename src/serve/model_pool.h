// Keeps the models of a server. One is loaded when a request asks for it, and unloaded when it was
// not used for a while or when another one needs its memory, but never while requests run on it.
//
// Requests for a model that is not loaded wait, and get it together. Models are loaded one after
// the other, in the order in which they were asked for. Where memory is missing, the least recently
// used idle model goes first. If all that are loaded have requests, the least recently used one
// takes no more of them: they wait until the model that needs the room has been served, so that
// nobody is kept out for good.
//
// The ideas are those of Ollama's scheduler, llama-swap and the router of llama.cpp's server.
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

// The pool keeps a loaded model as this.
class PooledModel {
 public:
  virtual ~PooledModel() = default;
};

// A lease keeps the model loaded as long as somebody has it. The pool must outlive leases.
using ModelLease = std::shared_ptr<PooledModel>;

enum class ModelState : uint8_t { unloaded, loading, loaded, failed };
const char* name_of(ModelState state);

struct PoolOptions {
  // Returns the memory that a model will need. Throws as `load`.
  std::function<uint64_t(const ModelPlace&)> plan;
  std::function<std::unique_ptr<PooledModel>(const ModelPlace&)> load;
  // The clock gives seconds; if it is empty, the machine's is used.
  std::function<double()> clock;
  // This receives lines for a log; it may be empty.
  std::function<void(const std::string& what)> tell;
  uint64_t most_bytes = UINT64_MAX;  // all loaded models together may take this much
  // An unused model is unloaded after this time; a number below 0 means never.
  double keep_seconds = 300;
  double patience_seconds = 60;  // a model waits this long for requests on others to end
  size_t waiting = 256;          // at most this many requests may wait for models
  uint64_t waiting_bytes = uint64_t{128} << 20;  // all of them together may hold this many bytes
};

class ModelPool {
 public:
  // Throws usage for two models of one name.
  ModelPool(std::vector<ModelPlace> places, PoolOptions options);
  // Unloads all models.
  ~ModelPool();
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  // Describes a request that waits for a model. One of the two functions is called once, on the
  // thread that loads or on that of forget() or drain().
  struct Waiter {
    std::function<void(ModelLease lease)> ready;
    std::function<void(const ApiError& error)> failed;
    uint64_t bytes = 0;  // the request holds this many bytes
    // The model stays loaded for this time after the request instead of the pool's.
    std::optional<double> keep_seconds = {};
  };

  // All functions up to drain() are thread-safe and do not block.
  size_t size() const { return entries_.size(); }
  const ModelPlace& place(size_t model) const { return entries_[model].place; }
  // Returns the number of a model, or nothing if there is none of this name.
  std::optional<size_t> find(const std::string& name) const;
  // Returns a lease if the model is loaded and takes requests, and null otherwise.
  ModelLease take(size_t model, std::optional<double> keep_seconds = {});
  // Returns a lease of a loaded model that does not count as use, or null if it is not loaded.
  ModelLease look_at(size_t model);
  // Lets a request wait for the model. Returns a number for forget(). Throws ApiError 429 or 503 if
  // too many wait or the pool is draining; then neither function of the waiter is called.
  uint64_t wait_for(size_t model, Waiter waiter);
  void forget(uint64_t waiter);
  // Unloads the model as soon as no request runs on it.
  void unload(size_t model);

  struct Status {
    ModelState state = ModelState::unloaded;
    std::string error;         // it says why the model could not be loaded
    uint64_t bytes = 0;        // a loaded model needs this many bytes
    int64_t requests = 0;      // this many requests run on it
    double keeps_seconds = 0;  // it is unloaded after this time; below 0 it stays
    uint64_t loads = 0, failures = 0;
  };
  Status status(size_t model) const;

  // Does one thing that is due, which is to unload a model or to make one ready. Returns false if
  // there is nothing to do for now. Only one thread may call this.
  bool step();
  // Calls step() until drain().
  void run();
  // Answers all that wait with an error, stops a load and loads no more. Loaded models stay.
  void drain();

 private:
  struct Entry {
    ModelPlace place;
    ModelState state = ModelState::unloaded;
    std::unique_ptr<PooledModel> model;
    int64_t requests = 0, looks = 0;  // both count leases
    // A request ended last at `used`, and the model then stays for `keep`.
    double used = 0, keep = 0;
    uint64_t bytes = 0;               // the loaded model takes this many bytes
    std::optional<uint64_t> planned;  // a model that is to be loaded will take this many bytes
    std::optional<double> blocked;    // it waits since then for others to go
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
  mutable std::mutex mutex_;  // it guards what follows
  std::condition_variable changed_;
  std::vector<Entry> entries_;  // their places are constant
  std::deque<Waiting> waiting_;
  uint64_t waiting_bytes_ = 0, next_id_ = 1, events_ = 0;
  std::atomic<bool> draining_ = false;  // it also stops a load
};

}  // namespace walsh
