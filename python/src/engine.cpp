#include "walsh/engine.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "calls.h"
#include "generate/sampling_options.h"
#include "module.h"
#include "shared_engine.h"
#include "text_stream.h"
#include "walsh/batch.h"
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

using Handle = std::shared_ptr<SharedEngine>;

// Makes a call that gives a value.
template <typename Result, typename Body>
Result call(const Handle& handle, const Body& body) {
  Result result{};
  run_interruptible([&] { handle->use([&](Engine& engine) { result = body(engine); }); });
  return result;
}

// Does the same for what the engine answers while another call runs.
template <typename Result, typename Body>
Result ask(const Handle& handle, const Body& body) {
  Result result{};
  run_interruptible([&] { handle->ask([&](const Engine& engine) { result = body(engine); }); });
  return result;
}

struct PyEngine {
  Handle handle;
};

void open_engine(PyEngine* self, const nb::bytes& path, const EngineOptions& options,
                 const nb::object& progress) {
  Handle handle;
  const std::string name = path_of(path);
  EngineOptions copy = options;
  Progress told(progress);
  if (told.wanted())
    copy.progress = [&](size_t done, size_t count, const std::string&) { told.set(done, count); };
  run_interruptible([&] { handle = std::make_shared<SharedEngine>(name, copy); }, told);
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
    self.handle->ask([&](const Engine& engine) {
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

// Returns how many positions the longest of the prompts takes with its text.
int64_t positions_of(const std::vector<std::vector<int32_t>>& prompts, int64_t max_tokens,
                     int64_t most) {
  if (max_tokens < 0) return most;
  int64_t longest = 1;
  for (const std::vector<int32_t>& prompt : prompts)
    longest = std::max(longest, std::ssize(prompt));
  return std::min(most, longest + std::min(max_tokens, most));
}

// Continues a text or its tokens. Python owns the result.
template <typename Prompt>
TextStream* stream_of(const PyEngine& self, Prompt prompt, const GenerationOptions& options) {
  return new TextStream(
      [handle = self.handle, prompt = std::move(prompt), options](const TextStream::Sink& sink) {
        GenerationResult result;
        const auto generate = [&](Engine& engine) {
          result = engine.generate(prompt, options, [&](std::string_view piece) {
            handle->check_files();
            return sink(piece);
          });
        };
        handle->use(generate, SharedEngine::Kind::stream);
        return result;
      });
}

TextStream* stream(const PyEngine& self, const Tokens& tokens, const GenerationOptions& options) {
  return stream_of(self, std::vector<int32_t>(tokens.data(), tokens.data() + tokens.size()),
                   options);
}

TextStream* stream_text(const PyEngine& self, const std::string& prompt,
                        const GenerationOptions& options) {
  return stream_of(self, prompt, options);
}

std::vector<nb::bytes> images(const GenerationOptions& options) {
  std::vector<nb::bytes> files;
  for (const std::string& file : options.images)
    files.emplace_back(file.data(), file.size());
  return files;
}

void set_images(GenerationOptions& options, const std::vector<nb::bytes>& files) {
  options.images.clear();
  for (const nb::bytes& file : files)
    options.images.emplace_back(file.c_str(), file.size());
}

// Returns what a stream gives next: its text, or None at the end.
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

nb::dict result_dict(const GenerationResult& r) {
  nb::dict result;
  result["text"] = r.text;
  result["reason"] = reason_name(r.reason);
  result["prompt_tokens"] = r.prompt_tokens;
  result["tokens"] = r.tokens;
  result["prompt_seconds"] = r.prompt_seconds;
  result["decode_seconds"] = r.decode_seconds;
  result["seed"] = r.seed;
  result["stop"] = r.stop;
  return result;
}

// Continues many prompts together.
nb::list generate_batch(const PyEngine& self, const std::vector<std::vector<int32_t>>& prompts,
                        const GenerationOptions& options, int64_t running,
                        const nb::object& progress) {
  std::vector<GenerationResult> results;
  Progress told(progress);
  const GenerationOptions copy = options;
  const auto generate = [&](Engine& engine) {
    BatchOptions sizes;
    sizes.running = std::min<int64_t>(running, std::ssize(prompts));
    sizes.waiting = std::ssize(prompts);
    sizes.kept = 0;
    sizes.context = positions_of(prompts, options.max_tokens, engine.context());
    TextBatch batch(engine, sizes);
    results = batch.generate_tokens(prompts, copy,
                                    [&](size_t ended) { told.set(ended, prompts.size()); });
  };
  run_interruptible([&] { self.handle->use(generate); }, told);
  nb::list list;
  for (const GenerationResult& result : results)
    list.append(result_dict(result));
  return list;
}

// Returns the embeddings of texts by their tokens, [texts][values].
nb::object embed(const PyEngine& self, const std::vector<std::vector<int32_t>>& texts,
                 const EmbeddingOptions& options, int64_t running) {
  std::vector<float> all;
  const EmbeddingOptions copy = options;
  const auto read = [&](Engine& engine) {
    BatchOptions sizes;
    sizes.running = std::min<int64_t>(running, std::ssize(texts));
    sizes.kept = 0;
    sizes.context = positions_of(texts, 0, engine.context());
    TextBatch batch(engine, sizes);
    for (const std::vector<float>& values : batch.embed_tokens(texts, copy))
      all.insert(all.end(), values.begin(), values.end());
  };
  run_interruptible([&] { self.handle->use(read); });
  const size_t width = all.size() / texts.size();
  return to_numpy(std::move(all), std::array<size_t, 2>{texts.size(), width});
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
// A seed of -1 is drawn.
void set_member(std::optional<uint64_t>& seed, const nb::object& value) {
  int64_t number = 0;
  if (nb::try_cast(value, number) && number == -1) return seed.reset();
  seed = nb::cast<uint64_t>(value);
}

// Sets the option of that name; a wrong type is a TypeError.
void set_sampling(GenerationOptions& options, const std::string& name, const nb::object& value) {
  const SamplingOption* option = find_sampling_option(name);
  if (option == nullptr) throw nb::attribute_error(name.c_str());
  try {
    std::visit(
        [&](auto member) {
          if constexpr (requires { member.wanted; }) {
            set_member(options.*member.wanted, value);
          } else {
            set_member(options.*member, value);
          }
        },
        option->member);
  } catch (const nb::cast_error&) {
    throw nb::type_error(name.c_str());
  }
}

// Returns the table of sampling options, a dictionary for each row.
nb::list sampling_rows() {
  nb::list rows;
  for (const SamplingOption& option : sampling_options()) {
    nb::dict row;
    row["name"] = option.name;
    row["other_names"] =
        std::vector<std::string>(option.other_names.begin(), option.other_names.end());
    row["values"] = range_text(option);
    row["default"] = default_text(option);
    row["help"] = option.help;
    row["key"] = std::string(option.key == nullptr ? "" : option.key);
    rows.append(row);
  }
  return rows;
}

void bind_options(nb::module_& module) {
  using Generation = GenerationOptions;
  nb::class_<Generation>(module, "GenerationOptions")
      .def(nb::init<>())
      .def_rw("max_tokens", &Generation::max_tokens)
      .def_rw("stop", &Generation::stop)
      .def_rw("grammar", &Generation::grammar)
      .def_rw("json_schema", &Generation::json_schema)
      .def_rw("lookup", &Generation::lookup)
      .def_rw("max_drafted", &Generation::max_drafted)
      .def_prop_rw("images", &images, &set_images)
      .def("set_sampling", &set_sampling);
  module.def("sampling_options", &sampling_rows);
  nb::class_<EmbeddingOptions>(module, "EmbeddingOptions")
      .def(nb::init<>())
      .def_rw("pooling", &EmbeddingOptions::pooling)
      .def_rw("normalize", &EmbeddingOptions::normalize, nb::arg().none())
      .def_rw("dimensions", &EmbeddingOptions::dimensions);
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
      .def_prop_rw(
          "draft",
          [](const Options& self) { return nb::bytes(self.draft.data(), self.draft.size()); },
          [](Options& self, const nb::bytes& path) { self.draft = path_of(path); })
      .def_rw("compress", &Options::compress, nb::arg().none());
}

std::vector<int32_t> encode(const PyEngine& self, const std::string& text, bool add_special) {
  return ask<std::vector<int32_t>>(
      self.handle, [&](const Engine& engine) { return engine.encode(text, add_special); });
}

std::vector<int32_t> encode_prompt(const PyEngine& self, const std::string& text) {
  return ask<std::vector<int32_t>>(
      self.handle, [&](const Engine& engine) { return engine.encode_prompt(text); });
}

std::string decode(const PyEngine& self, const Tokens& tokens, bool skip_special) {
  return ask<std::string>(self.handle, [&](const Engine& engine) {
    for (const int32_t token : span_of(tokens)) {
      if (token >= 0 && token < engine.vocab_size()) continue;
      throw Error(
          ErrorCode::usage, "token " + std::to_string(token),
          "is outside the vocabulary of " + std::to_string(engine.vocab_size()) + " tokens");
    }
    return engine.decode(span_of(tokens), skip_special);
  });
}

std::string chat_prompt(const PyEngine& self, const std::string& messages, bool generation) {
  return ask<std::string>(
      self.handle, [&](const Engine& engine) { return engine.chat_prompt(messages, generation); });
}

}  // namespace

void bind_engine(nb::module_& module) {
  bind_options(module);
  nb::class_<TextStream>(module, "TextStream")
      .def("next", &next_piece)
      .def("close", &TextStream::close, nb::call_guard<Unlocked>())
      .def("result", [](const TextStream& stream) { return result_dict(stream.result()); });
  nb::class_<PyEngine>(module, "Engine")
      .def("__init__", &open_engine, nb::arg(), nb::arg(), nb::arg("progress").none())
      .def(
          "close", [](PyEngine& self) { self.handle->close(); }, nb::call_guard<Unlocked>())
      .def(
          "cancel", [](PyEngine& self) { self.handle->cancel(); }, nb::call_guard<Unlocked>())
      .def("info", &info)
      .def("encode", &encode)
      .def("encode_prompt", &encode_prompt)
      .def("decode", &decode)
      .def("chat_prompt", &chat_prompt)
      .def("logits", &logits)
      .def("logprobs", &logprobs)
      .def("perplexity", &perplexity)
      .def("kl_divergence", &kl_divergence)
      .def("embed", &embed)
      .def("stream", &stream, nb::rv_policy::take_ownership)
      .def("stream_text", &stream_text, nb::rv_policy::take_ownership)
      .def("generate_batch", &generate_batch, nb::arg(), nb::arg(), nb::arg(),
           nb::arg("progress").none());
}

}  // namespace walsh::python
