#include "serve/model_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <set>
#include <utility>

#include "base/stop.h"
#include "walsh/error.h"

namespace walsh {
namespace {

std::string size_text(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

ApiError unavailable(const std::string& name, const std::string& reason) {
  return {503, fmt::format("the model '{}' cannot be loaded now: {}", name, reason), "model"};
}

// Returns the error of a load, as the requests that waited for it get it.
ApiError load_error(const std::string& name, const Error& error) {
  if (error.code() == ErrorCode::interrupted) return {503, "the server is shutting down"};
  if (error.code() == ErrorCode::limit) return unavailable(name, error.what());
  return {500, fmt::format("the model '{}' cannot be loaded: {}", name, error.what()), "model"};
}

}  // namespace

const char* name_of(ModelState state) {
  switch (state) {
    case ModelState::loading:
      return "loading";
    case ModelState::loaded:
      return "loaded";
    case ModelState::failed:
      return "failed";
    default:
      return "unloaded";
  }
}

ModelPool::ModelPool(std::vector<ModelPlace> places, PoolOptions options)
    : options_(std::move(options)) {
  std::set<std::string> names;
  for (ModelPlace& place : places) {
    if (!names.insert(place.name).second)
      throw Error(ErrorCode::usage, place.path, "another model is named " + place.name + ", too");
    entries_.emplace_back().place = std::move(place);
  }
}

// Requests that still run end while their model goes, and look at its entry then.
ModelPool::~ModelPool() {
  drain();
  for (Entry& entry : entries_) {
    std::unique_ptr<PooledModel> model;
    const std::lock_guard lock(mutex_);
    model = std::move(entry.model);
  }
}

double ModelPool::now() const {
  if (options_.clock) return options_.clock();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void ModelPool::tell(Lock& lock, const std::string& what) const {
  if (!options_.tell) return;
  lock.unlock();
  options_.tell(what);
  lock.lock();
}

std::optional<size_t> ModelPool::find(const std::string& name) const {
  for (size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].place.name == name) return i;
  return std::nullopt;
}

bool ModelPool::has_waiting(size_t model) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Waiting& one) { return one.model == model; });
}

// Returns a lease. The caller holds the mutex.
ModelLease ModelPool::lease(size_t model, bool counts) {
  Entry& entry = entries_[model];
  ++(counts ? entry.requests : entry.looks);
  return {entry.model.get(), [this, model, counts](PooledModel*) { end_lease(model, counts); }};
}

void ModelPool::end_lease(size_t model, bool counts) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[model];
  --(counts ? entry.requests : entry.looks);
  if (counts) entry.used = now();
  if (!entry.idle()) return;
  ++events_;
  changed_.notify_all();
}

ModelLease ModelPool::take(size_t model, std::optional<double> keep_seconds) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[model];
  if (!entry.takes_requests()) return nullptr;
  entry.keep = keep_seconds.value_or(options_.keep_seconds);
  return lease(model, true);
}

ModelLease ModelPool::look_at(size_t model) {
  const std::lock_guard lock(mutex_);
  return entries_[model].model ? lease(model, false) : nullptr;
}

uint64_t ModelPool::wait_for(size_t model, Waiter waiter) {
  const std::lock_guard lock(mutex_);
  if (draining_) throw ApiError(503, "the server is shutting down");
  if (waiting_.size() >= options_.waiting)
    throw ApiError(429, fmt::format("{} requests are waiting for models", waiting_.size()));
  if (waiter.bytes > options_.waiting_bytes - std::min(options_.waiting_bytes, waiting_bytes_))
    throw ApiError(503, "the requests that wait for models are too long together");
  waiting_bytes_ += waiter.bytes;
  waiting_.push_back({next_id_++, model, std::move(waiter)});
  ++events_;
  changed_.notify_all();
  return waiting_.back().id;
}

// Forgets a waiting request. Its client may still wait for an answer (HttpReply::on_gone).
void ModelPool::forget(uint64_t waiter) {
  Waiter left;
  {
    const std::lock_guard lock(mutex_);
    const auto place = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const Waiting& one) { return one.id == waiter; });
    if (place == waiting_.end()) return;
    waiting_bytes_ -= place->waiter.bytes;
    left = std::move(place->waiter);
    waiting_.erase(place);
    ++events_;
    changed_.notify_all();
  }
  left.failed(ApiError(503, "the client closed its side of the connection"));
}

std::vector<ModelPool::Waiter> ModelPool::take_waiting(size_t model) {
  std::vector<Waiter> taken;
  for (Waiting& one : waiting_) {
    if (one.model != model) continue;
    waiting_bytes_ -= one.waiter.bytes;
    taken.push_back(std::move(one.waiter));
  }
  std::erase_if(waiting_, [&](const Waiting& one) { return one.model == model; });
  return taken;
}

void ModelPool::unload(size_t model) {
  const std::lock_guard lock(mutex_);
  if (!entries_[model].model) return;
  entries_[model].dismissed = true;
  ++events_;
  changed_.notify_all();
}

ModelPool::Status ModelPool::status(size_t model) const {
  const std::lock_guard lock(mutex_);
  const Entry& entry = entries_[model];
  const bool waits = !entry.model && has_waiting(model);
  const double left = entry.keep - (entry.requests > 0 ? 0 : now() - entry.used);
  return {waits ? ModelState::loading : entry.state, entry.error, entry.bytes,   entry.requests,
          entry.keep < 0 ? -1 : std::max(0.0, left), entry.loads, entry.failures};
}

bool ModelPool::step() {
  Lock lock(mutex_);
  if (draining_) return false;
  if (unload_due(lock)) return true;
  const auto wanted = std::find_if(waiting_.begin(), waiting_.end(),
                                   [&](const Waiting& one) { return !entries_[one.model].model; });
  for (Entry& entry : entries_)
    entry.gives_way = false;
  const bool done = wanted != waiting_.end() && make_ready(lock, wanted->model);
  return serve_waiting(lock) || done;
}

void ModelPool::run() {
  constexpr auto kPause = std::chrono::milliseconds(500);  // models are unloaded by time, too
  const StopScope while_not_draining(draining_);
  while (true) {
    uint64_t seen = 0;
    {
      const std::lock_guard lock(mutex_);
      if (draining_) return;
      seen = events_;
    }
    if (step()) continue;
    Lock lock(mutex_);
    changed_.wait_for(lock, kPause, [&] { return draining_ || events_ != seen; });
  }
}

void ModelPool::drain() {
  std::deque<Waiting> left;
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    std::swap(left, waiting_);
    waiting_bytes_ = 0;
    changed_.notify_all();
  }
  for (const Waiting& one : left)
    one.waiter.failed(ApiError(503, "the server is shutting down"));
}

bool ModelPool::unload_due(Lock& lock) {
  for (Entry& entry : entries_) {
    if (!entry.idle()) continue;
    const bool old = entry.keep >= 0 && now() - entry.used >= entry.keep;
    if (!old && !entry.dismissed) continue;
    unload_now(lock, entry, entry.dismissed ? "it was asked to go" : "nobody has used it");
    return true;
  }
  return false;
}

// Unloads a model, whose memory counts until it is free.
void ModelPool::unload_now(Lock& lock, Entry& entry, const char* why) {
  std::unique_ptr<PooledModel> model = std::move(entry.model);
  entry.state = ModelState::unloaded;
  lock.unlock();
  model.reset();
  lock.lock();
  entry.bytes = 0;
  entry.dismissed = entry.gives_way = false;
  tell(lock, fmt::format("unloaded {}: {}", entry.place.name, why));
}

uint64_t ModelPool::loaded_bytes() const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_)
    bytes += entry.bytes;
  return bytes;
}

// Returns the model that was not used for the longest time. It is an idle one, or one with requests
// that does not give way yet.
ModelPool::Entry* ModelPool::least_recently_used(bool idle) {
  Entry* least = nullptr;
  for (Entry& entry : entries_) {
    if (!entry.model || entry.idle() != idle || entry.gives_way) continue;
    if (least == nullptr || entry.used < least->used) least = &entry;
  }
  return least;
}

// Loads a model, or does a step towards that. Returns false if it has to wait for other requests.
bool ModelPool::make_ready(Lock& lock, size_t wanted) {
  Entry& entry = entries_[wanted];
  try {
    if (!entry.planned) {
      lock.unlock();
      const uint64_t bytes = options_.plan(entry.place);
      lock.lock();
      entry.planned = bytes;
    }
    if (!make_room(lock, wanted)) return false;
    load_now(lock, wanted);
  } catch (const ApiError& e) {
    if (!lock) lock.lock();
    fail(lock, wanted, e);
  } catch (const Error& e) {
    if (!lock) lock.lock();
    fail(lock, wanted, load_error(entry.place.name, e));
  } catch (const std::bad_alloc&) {
    if (!lock) lock.lock();
    fail(lock, wanted, unavailable(entry.place.name, "there is not enough memory"));
  } catch (const std::exception& e) {
    if (!lock) lock.lock();
    fail(lock, wanted, ApiError(500, e.what(), "model"));
  }
  return true;
}

// Unloads idle models until there is room. Returns false if requests on others have to end first,
// whose models then give way.
bool ModelPool::make_room(Lock& lock, size_t wanted) {
  Entry& entry = entries_[wanted];
  const uint64_t bytes = *entry.planned, most = options_.most_bytes;
  if (bytes > most)
    throw unavailable(entry.place.name,
                      fmt::format("it needs {}, and all models together may have {}",
                                  size_text(bytes), size_text(most)));
  while (loaded_bytes() > most - bytes) {
    if (Entry* idle = least_recently_used(true)) {
      unload_now(lock, *idle, "another model needs its memory");
      continue;
    }
    std::string names;
    const uint64_t needed = loaded_bytes() - (most - bytes);
    for (uint64_t freed = 0; freed < needed;) {
      Entry* busy = least_recently_used(false);
      if (busy == nullptr) break;
      busy->gives_way = true;
      freed += busy->bytes;
      names += (names.empty() ? "" : ", ") + busy->place.name;
    }
    if (!entry.blocked) entry.blocked = now();
    if (now() - *entry.blocked < options_.patience_seconds) return false;
    throw unavailable(entry.place.name,
                      fmt::format("it needs {} of {}, and requests are still running on {}",
                                  size_text(bytes), size_text(most), names));
  }
  entry.blocked.reset();
  return true;
}

// Loads a model. Where the device refuses a model that was planned to fit, idle ones make room for
// it, one after the other.
void ModelPool::load_now(Lock& lock, size_t wanted) {
  Entry& entry = entries_[wanted];
  tell(lock, fmt::format("loading {} ({})", entry.place.name, size_text(*entry.planned)));
  entry.bytes = *entry.planned;
  entry.state = ModelState::loading;
  const double start = now();
  lock.unlock();
  std::unique_ptr<PooledModel> model;
  const auto refused = [&] {
    lock.lock();
    entry.bytes = 0;
    entry.state = ModelState::unloaded;
    Entry* idle = least_recently_used(true);
    if (idle != nullptr) unload_now(lock, *idle, "another model needs its memory");
    return idle == nullptr;
  };
  try {
    model = options_.load(entry.place);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::limit || refused()) throw;
    return;
  } catch (const std::bad_alloc&) {
    if (refused()) throw;
    return;
  }
  lock.lock();
  entry.model = std::move(model);
  entry.state = ModelState::loaded;
  entry.used = now();
  entry.keep = options_.keep_seconds;
  entry.error.clear();
  entry.planned.reset();
  ++entry.loads;
  tell(lock, fmt::format("loaded {} in {:.1f} s", entry.place.name, now() - start));
}

// Tells all that wait for a model that it failed. A model for which there is no room has not failed
// itself.
void ModelPool::fail(Lock& lock, size_t model, const ApiError& error) {
  Entry& entry = entries_[model];
  for (Entry& other : entries_)
    other.gives_way = false;
  entry.bytes = 0;
  entry.planned.reset();
  entry.blocked.reset();
  entry.state = error.status() == 503 ? ModelState::unloaded : ModelState::failed;
  entry.error = error.what();
  ++entry.failures;
  std::vector<Waiter> waiters = take_waiting(model);
  lock.unlock();
  if (options_.tell) options_.tell(error.what());
  for (const Waiter& waiter : waiters)
    waiter.failed(error);
  waiters.clear();
  lock.lock();
}

bool ModelPool::serve_waiting(Lock& lock) {
  std::vector<std::pair<Waiter, ModelLease>> served;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].takes_requests()) continue;
    for (Waiter& waiter : take_waiting(i)) {
      entries_[i].keep = waiter.keep_seconds.value_or(options_.keep_seconds);
      served.emplace_back(std::move(waiter), lease(i, true));
    }
  }
  if (served.empty()) return false;
  lock.unlock();
  for (auto& [waiter, lease] : served)
    waiter.ready(std::move(lease));
  served.clear();
  lock.lock();
  return true;
}

}  // namespace walsh
