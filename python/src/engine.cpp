#include "walsh/engine.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>

#include "base/stop.h"
#include "calls.h"
#include "generate/sampling_options.h"
#include "module.h"
#include "text_stream.h"
#include "walsh/error.h"

namespace walsh::python {
namespace {

// Values of an array move into a NumPy array that owns them from then on.
template <typename Shape>
nb::object to_numpy(std::vector<float>&& values, const Shape& shape) {
  auto owner = std::make_unique<std::vector<float>>(std::move(values));
  float* data = owner->data();
  const nb::capsule capsule(owner.release(),
                            [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return nb::ndarray<nb::numpy, float>(data, shape.size(), shape.data(), capsule)
      .cast(nb::rv_policy::reference);
}

// An engine that threads of Python may share: one call at a time, and none after close().
class SharedEngine {
 public:
  SharedEngine(const std::string& path, const EngineOptions& options)
      : engine_(std::make_unique<Engine>(Engine::open(path, options))) {}
  ~SharedEngine() { leave_to_parent(); }
  SharedEngine(const SharedEngine&) = delete;
  SharedEngine& operator=(const SharedEngine&) = delete;

  // Calls body(engine) once every other call is done; throws usage if it is closed.
  template <typename Body>
  void use(const Body& body) {
    if (process_ != this_process()) {
      throw Error(ErrorCode::usage, "model",
                  "it was opened before this process was forked off: open it here");
    }
    std::unique_lock lock(mutex_, std::defer_lock);
    while (!lock.try_lock_for(std::chrono::milliseconds(20)))
      check_stop();
    if (!engine_) throw Error(ErrorCode::usage, "model", "it is closed");
    body(*engine_);
  }
  // Two models at once. Locks are taken in one order, so that two threads that compare them either
  // way do not wait for each other for ever.
  template <typename Body>
  static void use_both(SharedEngine& a, SharedEngine& b, const Body& body) {
    const bool in_order = std::less<>()(&a, &b);
    SharedEngine &first = in_order ? a : b, &second = in_order ? b : a;
    first.use([&](Engine&) { second.use([&](Engine&) { body(*a.engine_, *b.engine_); }); });
  }
  void close() {
    if (leave_to_parent()) return;
    const std::lock_guard lock(mutex_);
    engine_.reset();
  }

 private:
  // In the child of a fork: the threads that the engine would wait for do not exist there.
  bool leave_to_parent() {
    if (process_ == this_process()) return false;
    (void)engine_.release();
    return true;
  }

  const int process_ = this_process();
  std::timed_mutex mutex_;
  std::unique_ptr<Engine> engine_;
};

using Handle = std::shared_ptr<SharedEngine>;

// A call that gives a value.
template <typename Result, typename Body>
Result call(const Handle& handle, const Body& body) {
  Result result{};
  run_interruptible([&] { handle->use([&](Engine& engine) { result = body(engine); }); });
  return result;
}

struct PyEngine {
  Handle handle;
};

void open_engine(PyEngine* self, const nb::bytes& path, const EngineOptions& options) {
  Handle handle;
  const std::string name = path_of(path);
  const EngineOptions copy = options;
  run_interruptible([&] { handle = std::make_shared<SharedEngine>(name, copy); });
  new (self) PyEngine{std::move(handle)};
}

nb::dict info(const PyEngine& self) {
  nb::dict result;
  std::vector<std::string> notes;
  std::string type, device;
  int64_t vocab = 0, context = 0;
  double bits = 0;
  bool chat = false;
  run_interruptible([&] {
    self.handle->use([&](Engine& engine) {
      notes = engine.notes();
      type = engine.type();
      device = engine.device();
      vocab = engine.vocab_size();
      context = engine.context();
      bits = engine.bits_per_weight();
      chat = engine.has_chat_template();
    });
  });
  result["notes"] = notes;
  result["type"] = type;
  result["device"] = device;
  result["vocab_size"] = vocab;
  result["context"] = context;
  result["bits_per_weight"] = bits;
  result["has_chat_template"] = chat;
  return result;
}

nb::object logits(const PyEngine& self, const Tokens& tokens, int64_t first, bool all) {
  int64_t vocab = 0;
  auto values = call<std::vector<float>>(self.handle, [&](Engine& engine) {
    vocab = engine.vocab_size();
    return all ? engine.all_logits(span_of(tokens), first) : engine.logits(span_of(tokens));
  });
  const auto columns = static_cast<size_t>(vocab);
  if (!all) return to_numpy(std::move(values), std::array<size_t, 1>{columns});
  const size_t rows = values.size() / columns;
  return to_numpy(std::move(values), std::array<size_t, 2>{rows, columns});
}

nb::list logprobs(const PyEngine& self, const Tokens& tokens, int64_t first) {
  const auto scores = call<std::vector<TokenPrediction>>(
      self.handle, [&](Engine& engine) { return engine.logprobs(span_of(tokens), first); });
  nb::list result;
  for (const TokenPrediction& score : scores)
    result.append(nb::make_tuple(score.logprob, score.best));
  return result;
}

nb::tuple perplexity(const PyEngine& self, const std::string& text, int64_t ctx, int64_t chunks) {
  const auto r = call<PerplexityResult>(
      self.handle, [&](Engine& engine) { return engine.perplexity(text, ctx, chunks); });
  return nb::make_tuple(r.perplexity, r.standard_error, r.tokens);
}

nb::tuple kl_divergence(const PyEngine& self, const PyEngine& reference, const std::string& text,
                        int64_t ctx, int64_t chunks) {
  DivergenceResult r;
  const auto measure = [&](Engine& engine, const Engine& other) {
    r = engine.kl_divergence(other, text, ctx, chunks);
  };
  run_interruptible([&] {
    if (self.handle == reference.handle)
      self.handle->use([&](Engine& engine) { measure(engine, engine); });
    else
      SharedEngine::use_both(*self.handle, *reference.handle, measure);
  });
  return nb::make_tuple(r.mean, r.standard_error, r.same_top, r.perplexity, r.reference_perplexity,
                        r.tokens);
}

// Python owns the result.
TextStream* stream(const PyEngine& self, const Tokens& tokens, const GenerationOptions& options) {
  std::vector<int32_t> prompt(tokens.data(), tokens.data() + tokens.size());
  return new TextStream(
      [handle = self.handle, prompt = std::move(prompt), options](const TextStream::Sink& sink) {
        GenerationResult result;
        handle->use([&](Engine& engine) { result = engine.generate(prompt, options, sink); });
        return result;
      });
}

// What a stream gives next: its text, or None at the end.
nb::object next_piece(TextStream& stream) {
  std::optional<std::string> piece;
  run_interruptible([&] { piece = stream.next(); });
  if (!piece) return nb::none();
  return nb::str(piece->data(), piece->size());
}

const char* reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop_token:
      return "stop_token";
    case FinishReason::max_tokens:
      return "max_tokens";
    case FinishReason::context_full:
      return "context_full";
    case FinishReason::stopped:
      return "stopped";
    case FinishReason::stop_string:
      return "stop_string";
  }
  return "stopped";
}

nb::dict stream_result(const TextStream& stream) {
  const GenerationResult r = stream.result();
  nb::dict result;
  result["text"] = r.text;
  result["reason"] = reason_name(r.reason);
  result["prompt_tokens"] = r.prompt_tokens;
  result["tokens"] = r.tokens;
  result["prompt_seconds"] = r.prompt_seconds;
  result["decode_seconds"] = r.decode_seconds;
  result["seed"] = r.seed;
  return result;
}

// What Python gives for a member: samplers as a list, biases as a mapping.
template <typename T>
void set_member(T& member, const nb::object& value) {
  member = nb::cast<T>(value);
}
void set_member(std::string& names, const nb::object& value) {
  names.clear();
  for (const std::string& name : nb::cast<std::vector<std::string>>(value))
    names += (names.empty() ? "" : ";") + name;
}
void set_member(std::vector<std::pair<int32_t, float>>& biases, const nb::object& value) {
  biases.clear();
  for (const auto& [token, bias] : nb::cast<std::map<int32_t, float>>(value))
    biases.emplace_back(token, bias);
}

// Sets the option of that row; a wrong type is a TypeError.
void set_sampling(GenerationOptions& options, const std::string& name, const nb::object& value) {
  for (const SamplingOption& option : sampling_options()) {
    if (name != option.name) continue;
    try {
      return std::visit(
          [&](auto member) {
            if constexpr (requires { member.wanted; }) {
              set_member(options.*member.wanted, value);
            } else {
              set_member(options.*member, value);
            }
          },
          option.member);
    } catch (const nb::cast_error&) {
      throw nb::type_error(option.name);
    }
  }
  throw nb::attribute_error(name.c_str());
}

// Name, range, default and meaning of each row.
std::vector<std::array<std::string, 4>> sampling_rows() {
  std::vector<std::array<std::string, 4>> rows;
  for (const SamplingOption& option : sampling_options())
    rows.push_back({option.name, range_text(option), default_text(option), option.help});
  return rows;
}

void bind_options(nb::module_& module) {
  using Generation = GenerationOptions;
  nb::class_<Generation>(module, "GenerationOptions")
      .def(nb::init<>())
      .def_rw("max_tokens", &Generation::max_tokens)
      .def("set_sampling", &set_sampling);
  module.def("sampling_options", &sampling_rows);
  using Options = EngineOptions;
  nb::class_<Options>(module, "EngineOptions")
      .def(nb::init<>())
      .def_rw("threads", &Options::threads)
      .def_rw("context", &Options::context)
      .def_rw("activations", &Options::activations)
      .def_rw("device", &Options::device)
      .def_rw("cache_keys", &Options::cache_keys)
      .def_rw("cache_values", &Options::cache_values)
      .def_rw("cache_window", &Options::cache_window)
      .def_rw("device_bytes", &Options::device_bytes)
      .def_rw("gpu_layers", &Options::gpu_layers, nb::arg().none())
      .def_rw("cpu_experts", &Options::cpu_experts, nb::arg().none())
      .def_rw("compress", &Options::compress, nb::arg().none());
}

std::vector<int32_t> encode(const PyEngine& self, const std::string& text, bool add_special) {
  return call<std::vector<int32_t>>(
      self.handle, [&](Engine& engine) { return engine.encode(text, add_special); });
}

std::vector<int32_t> encode_prompt(const PyEngine& self, const std::string& text) {
  return call<std::vector<int32_t>>(self.handle,
                                    [&](Engine& engine) { return engine.encode_prompt(text); });
}

std::string decode(const PyEngine& self, const Tokens& tokens, bool skip_special) {
  return call<std::string>(
      self.handle, [&](Engine& engine) { return engine.decode(span_of(tokens), skip_special); });
}

std::string chat_prompt(const PyEngine& self, const std::string& messages, bool generation) {
  return call<std::string>(
      self.handle, [&](Engine& engine) { return engine.chat_prompt(messages, generation); });
}

}  // namespace

void bind_engine(nb::module_& module) {
  bind_options(module);
  nb::class_<TextStream>(module, "TextStream")
      .def("next", &next_piece)
      .def("close", &TextStream::close, nb::call_guard<Unlocked>())
      .def("result", &stream_result);
  nb::class_<PyEngine>(module, "Engine")
      .def("__init__", &open_engine)
      .def(
          "close", [](PyEngine& self) { self.handle->close(); }, nb::call_guard<Unlocked>())
      .def("info", &info)
      .def("encode", &encode)
      .def("encode_prompt", &encode_prompt)
      .def("decode", &decode)
      .def("chat_prompt", &chat_prompt)
      .def("logits", &logits)
      .def("logprobs", &logprobs)
      .def("perplexity", &perplexity)
      .def("kl_divergence", &kl_divergence)
      .def("stream", &stream, nb::rv_policy::take_ownership);
}

}  // namespace walsh::python
