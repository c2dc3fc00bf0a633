#include "cli/model_options.h"

#include <unistd.h>

#include <algorithm>

#include "api/draft_model.h"
#include "api/engine_access.h"
#include "base/cpu.h"
#include "base/cuda/device.h"
#include "base/cuda/first_device.h"
#include "base/stop.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "codec/kernels.h"
#include "weights/hub_cache.h"

namespace walsh::cli {
namespace {

// Calls `load` with a progress bar, if there is a terminal.
template <class Load>
auto show_progress(LoadOptions options, const Load& load, bool quiet = false) {
  ProgressBar bar(!quiet && is_terminal(STDERR_FILENO));
  options.progress = [&bar](size_t done, size_t total, const std::string& name) {
    InterruptGuard::check();
    check_stop();
    bar.update(done, total, "loading " + name);
  };
  return load(options);
}

LoadedModel with_notes_printed(LoadedModel loaded) {
  print_notes(loaded.notes);
  return loaded;
}

// Parses "auto" or a number of layers.
int64_t parse_layers(const std::string& text) {
  return text == "auto" ? kPlanned : std::stoll(text);
}

// Says why a text is no number of layers, if it is none.
std::string problem_of_layers(const std::string& text) {
  const bool number =
      !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos;
  return number || text == "auto" ? "" : text + " is neither auto nor a number";
}

LoadOptions load_options(const Device& device, ActivationMode activations, const ModelUse& use) {
  LoadOptions options;
  options.activations = activations;
  options.device = device;
  options.use.max_positions = use.positions;
  options.use.sequences = use.sequences;
  options.use.revoking = use.texts;
  return options;
}

}  // namespace

void MachineOptions::add_to(Command& command) {
  add_threads_to(command);
  add_isa_to(command);
}

void MachineOptions::add_threads_to(Command& command) {
  command.group("Machine").add("-t,--threads", &threads,
                               "Threads (default: one per core, not per hyperthread)",
                               {.range = between(1, 1024)});
}

void MachineOptions::add_isa_to(Command& command) {
  command.group("Machine").add("--isa", &isa, "Instruction set: ref, avx2, avx512, avx512vbmi, amx",
                               {.value = "ISA"});
}

void MachineOptions::apply() const {
  force_isa(isa);
  current_isa();  // an invalid WALSH_ISA is refused before any work
}

std::vector<std::string> activation_modes() {
  return {"auto", "i8", "i8x2", "f16", "f32", "lut"};
}

void ModelOptions::add_to(Command& command) {
  add_model_to(command, true);
  machine.add_threads_to(command);
}

void ModelOptions::add_loading_to(Command& command) {
  add_common_to(command);
  machine.add_threads_to(command);
}

void add_pooling(Command& command, std::string& pooling) {
  command.group("Embeddings")
      .add("--pooling", &pooling,
           "Which states of its tokens are a text's embedding: last, mean or cls (the first); "
           "default: as the model's files say, otherwise last",
           {.choices = {"last", "mean", "cls"}});
}

void ModelOptions::add_model_to(Command& command, bool model_required) {
  command.add("MODEL,-m,--model", &path,
              "A walsh file, a Hugging Face folder or its name (walsh list), or a GGUF file of "
              "llama.cpp; also -m MODEL",
              {.required = model_required, .replacement = found_model});
  add_common_to(command);
}

void ModelOptions::add_common_to(Command& command) {
  const FlagGroup group = command.group("Machine");
  group.add("--activations", &activations,
            "Activations that coded weights are multiplied with: auto (the format's own), i8, i8x2 "
            "(two int8 planes), f16 (GPU), f32 (CPU, exact) or lut (CPU: pq3 by lookup)",
            {.choices = activation_modes(), .any_case = true});
  group.add("--device", &device, "cpu, cuda, cuda:N, or auto (a GPU if there is one)",
            {.value = "DEVICE", .shown = true});
  group.add("--device-memory", &device_memory,
            "Use at most this much of the GPU's memory, such as 24GiB", {.value = "SIZE"});
  group.add("--gpu-layers,--ngl,--n-gpu-layers", &gpu_layers,
            "Compute the last N layers on the GPU, the others on the CPU; auto: as many as fit; "
            "also -ngl",
            {.value = "N", .shown = true, .problem = problem_of_layers});
  group.add("--cpu-experts,--ncmoe,--n-cpu-moe", &cpu_experts,
            "Compute the experts of the first N layers on the CPU; auto: as few as needed, or none "
            "if --gpu-layers is a number; also -ncmoe",
            {.value = "N", .shown = true, .problem = problem_of_layers});
  add_cache_to(command);
  recipe.add_to(command, "--quantize");
  machine.add_isa_to(command);
}

void ModelOptions::add_cache_to(Command& command) {
  const FlagGroup group = command.group("Cache of keys and values");
  std::vector<std::string> names;
  for (const CacheType& type : all_cache_types())
    names.emplace_back(type.name);
  group.add("--cache-type-k,--ctk", &cache_keys, "Type in which older keys are stored; also -ctk",
            {.shown = true, .choices = names, .any_case = true});
  group.add("--cache-type-v,--ctv", &cache_values,
            "Type in which older values are stored; also -ctv",
            {.shown = true, .choices = names, .any_case = true});
  window_flag = &group.add("--kv-window", &cache_window,
                           "Positions that stay f16 where a type is coded: at least this many of "
                           "the latest ones, and the first 4",
                           {.shown = true, .range = between(0, 1 << 30)});
}

void ModelOptions::add_speculation_to(const FlagGroup& group) {
  group.add("--spec", &speculation,
            "Guess several tokens at once, for the same text sooner: ngram (where it repeats "
            "itself), mtp[:N] (the model's own layer that predicts further tokens, at most N), or "
            "a smaller model with the same tokenizer",
            {.value = "MODEL", .shown = true});
}

CacheTypes ModelOptions::cache() const {
  return {&get_cache_type(cache_keys), &get_cache_type(cache_values), cache_window};
}

std::string ModelOptions::draft_path() const {
  if (speculation == "none" || looks_up()) return "";
  return ahead_depth(speculation) ? speculation : found_model(speculation);
}

LoadOptions ModelOptions::loading(const ModelUse& use) const {
  LoadOptions options = load_options(chosen_device(), parse_activation_mode(activations), use);
  options.may_use_cpu = device == "auto";
  if (speculation != "none") options.use.revocable = kRevocableTokens;
  options.rotate_weights = recipe.rotates_weights();
  options.cache = cache();
  options.gpu_layers = parse_layers(gpu_layers);
  if (!options.device.cuda && options.gpu_layers > 0) options.gpu_layers = kPlanned;
  options.cpu_experts = parse_layers(cpu_experts);
  if (!device_memory.empty()) options.device_bytes = parse_bytes(device_memory, "--device-memory");
  return options;
}

template <class Load>
auto ModelOptions::with_progress(const ModelUse& use, const Load& load) const {
  LoadOptions options = loading(use);
  if (window_flag != nullptr && window_flag->given() && !options.cache.coded())
    tell({"--kv-window changes nothing: it needs a coded type such as -ctk q8_0"});
  return show_progress(std::move(options), load, quiet);
}

void ModelOptions::tell(const std::vector<std::string>& notes) const {
  if (!quiet) print_notes(notes);
}

// Notes flags that have no effect on this model and machine.
void ModelOptions::tell_idle_flags(const Model& model) const {
  if (quiet) return;
  if (!chosen_device().cuda) {
    const std::string why =
        cuda::first_device() ? "the CPU was asked for" : cuda::unavailable_reason();
    if (parse_layers(gpu_layers) > 0)
      print_note("--gpu-layers changes nothing: no GPU is used (" + why + ")");
    if (!device_memory.empty()) print_note("--device-memory changes nothing: no GPU is used");
    if (parse_layers(cpu_experts) > 0)
      print_note("--cpu-experts changes nothing: no GPU is used, so all experts run on the CPU");
  }
  const ActivationMode mode = parse_activation_mode(activations);
  if (mode == ActivationMode::automatic) return;
  const auto concerned = [&](const Linear& matrix) {
    if (matrix.format == nullptr || matrix.format->dense) return false;
    return mode != ActivationMode::lut || has_kernel(*matrix.format, Kernel::cpu_lookup);
  };
  for (const Model& part : model.all_parts()) {
    if (concerned(part.head)) return;
    for (const Layer& layer : part.layers)
      if (std::any_of(layer.matrices.begin(), layer.matrices.end(), concerned)) return;
  }
  print_note("--activations " + activations + " changes nothing: no matrix has " +
             (mode == ActivationMode::lut ? "a product code (pq3)" : "a coded type"));
}

std::optional<Recipe> ModelOptions::wanted_recipe() const {
  recipe.refuse_without_type();
  if (!recipe.given()) return std::nullopt;
  Recipe wanted = recipe.recipe();
  tell(name_notes(wanted));
  tell(recipe.idle_flags(wanted));
  return wanted;
}

Engine ModelOptions::open_engine(const ModelUse& use, const GenerationOptions& generation,
                                 const TemplateText* chat_template, bool for_batches) const {
  const std::optional<Recipe> wanted = wanted_recipe();
  Engine engine = with_progress(use, [&](const LoadOptions& options) {
    return EngineAccess::open(std::make_unique<ThreadPool>(machine.threads),
                              {path, wanted ? &*wanted : nullptr, options, &generation,
                               chat_template, for_batches, draft_path(), use.texts});
  });
  print_notes(engine.notes());
  tell_idle_flags(EngineAccess::model(engine).model);
  return engine;
}

LoadedModel ModelOptions::load(const ModelUse& use, ThreadPool& pool,
                               const TemplateText* chat_template,
                               const GenerationOptions* generation) const {
  const std::optional<Recipe> wanted = wanted_recipe();
  LoadedModel loaded = with_progress(use, [&](LoadOptions options) {
    options.pool = &pool;
    return load_with_drafts(path, wanted ? &*wanted : nullptr, options, generation, chat_template,
                            draft_path(), use.texts);
  });
  tell(loaded.notes);
  tell_idle_flags(loaded.model);
  return loaded;
}

std::unique_ptr<WeightSource> ModelOptions::open(ThreadPool& pool) const {
  const std::optional<Recipe> wanted = wanted_recipe();
  auto source = open_weights(path, wanted ? &*wanted : nullptr, pool);
  tell(source->notes());
  return source;
}

Model ModelOptions::load_weights_only(WeightSource& source, const ModelUse& use,
                                      ThreadPool& pool) const {
  Model model = with_progress(use, [&](LoadOptions options) {
    options.pool = &pool;
    return load_weights(source, options);
  });
  if (!model.device_note.empty()) print_note(model.device_note);
  tell_idle_flags(model);
  return model;
}

Device ModelOptions::chosen_device() const {
  if (parse_layers(gpu_layers) == 0) return parse_device("cpu");
  const bool cpu_only = activations == "f32" || activations == "lut";
  return parse_device(device == "auto" && cpu_only ? "cpu" : device);
}

LoadedModel ModelOptions::load_plain(const std::string& path, const Device& device,
                                     ActivationMode activations, const ModelUse& use,
                                     const Model& model, ThreadPool& pool) {
  LoadOptions wanted = load_options(device, activations, use);
  wanted.pool = &pool;
  wanted.gpu_layers = wanted.cpu_experts = kPlanned;
  if (device == model.device) wanted.device_spare = model.device_spare;
  return with_notes_printed(show_progress(std::move(wanted), [&](const LoadOptions& options) {
    return load_model(path, nullptr, options);
  }));
}

}  // namespace walsh::cli
