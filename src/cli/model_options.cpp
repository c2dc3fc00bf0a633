#include "cli/model_options.h"

#include <unistd.h>

#include <optional>

#include "base/cpu.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "generate/generator.h"
#include "model/config.h"
#include "model/tensors.h"
#include "quantize/open.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

Model load_weights(WeightSource& source, const ModelConfig& config, ActivationMode activations,
                   ThreadPool& pool) {
  ProgressBar bar(is_terminal(STDERR_FILENO));
  LoadOptions options;
  options.pool = &pool;
  options.activations = activations;
  options.progress = [&bar](size_t done, size_t total, const std::string& name) {
    InterruptGuard::check();
    bar.update(done, total, "loading " + name);
  };
  return Model::load(source, config, options);
}

LoadedModel load_from(WeightSource& source, const std::string& path, ActivationMode activations,
                      ThreadPool& pool) {
  const Stopwatch watch;
  const ModelConfig config = parse_config(source.config_json(), path + ": config.json");
  if (source.tokenizer_json().empty()) {
    throw Error(ErrorCode::bad_input, path, "there is no tokenizer.json");
  }
  Tokenizer tokenizer = Tokenizer::from_json(source.tokenizer_json(),
                                             source.tokenizer_config_json(), path + ": tokenizer");
  std::vector<int32_t> stops =
      stop_ids(config, source.generation_config_json(), path + ": generation_config.json");
  Model model = load_weights(source, config, activations, pool);
  return {path,
          std::move(model),
          std::move(tokenizer),
          std::move(stops),
          std::string(source.generation_config_json()),
          watch.seconds()};
}

}  // namespace

void MachineOptions::add_to(CLI::App& command) {
  command.add_option("-t,--threads", threads, "Threads (default: one per core)")
      ->check(CLI::Range(1, 1024))
      ->group("Machine");
  add_isa_to(command);
}

void MachineOptions::add_isa_to(CLI::App& command) {
  command.add_option("--isa", isa, "Instruction set: ref, avx2, avx512, avx512vbmi")
      ->group("Machine")
      ->type_name("ISA");
}

void MachineOptions::apply() const {
  force_isa(isa);
  current_isa();  // refuses a wrong WALSH_ISA before any work
}

ModelPlan read_plan(std::string_view config_json, std::string_view where) {
  return make_plan(parse_config(config_json, where));
}

void ModelOptions::add_to(CLI::App& command) {
  add_model_to(command, true);
  command.add_option("-t,--threads", machine.threads, "Threads (default: one per core)")
      ->check(CLI::Range(1, 1024))
      ->group("Machine");
}

void ModelOptions::add_model_to(CLI::App& command, bool model_required) {
  command.add_option("MODEL", path, "A walsh file or a Hugging Face folder")
      ->required(model_required);
  command
      .add_option("--activations", activations,
                  "What coded weights are multiplied with: auto (as the format asks), i8, i8x2 "
                  "(two int8 planes) or f32 (exact)")
      ->check(CLI::IsMember({"auto", "i8", "i8x2", "f32"}))
      ->group("Machine");
  recipe.add_to(command, "--quantize");
  machine.add_isa_to(command);
}

std::unique_ptr<WeightSource> ModelOptions::open(ThreadPool& pool) const {
  std::optional<Recipe> wanted;
  recipe.refuse_without_type();
  if (recipe.given()) wanted = recipe.recipe();
  return open_source(path, wanted ? &*wanted : nullptr, read_plan, pool);
}

LoadedModel ModelOptions::load(ThreadPool& pool) const {
  const auto source = open(pool);
  return load_from(*source, path, parse_activation_mode(activations), pool);
}

Model ModelOptions::load_weights_only(WeightSource& source, ThreadPool& pool) const {
  return load_weights(source, parse_config(source.config_json(), source.path() + ": config.json"),
                      parse_activation_mode(activations), pool);
}

LoadedModel ModelOptions::load_plain(const std::string& path, ThreadPool& pool) {
  const auto source = open_source(path, nullptr, read_plan, pool);
  return load_from(*source, path, ActivationMode::automatic, pool);
}

}  // namespace walsh::cli
