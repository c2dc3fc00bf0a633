#include "cli/model_options.h"

#include <unistd.h>

#include "base/cpu.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace walsh::cli {
namespace {

// Calls `load` with options that draw a bar on a terminal.
template <class Load>
auto with_progress(ThreadPool& pool, const Device& device, ActivationMode activations,
                   const Load& load) {
  ProgressBar bar(is_terminal(STDERR_FILENO));
  LoadOptions options;
  options.pool = &pool;
  options.activations = activations;
  options.device = device;
  options.progress = [&bar](size_t done, size_t total, const std::string& name) {
    InterruptGuard::check();
    bar.update(done, total, "loading " + name);
  };
  return load(options);
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
                  "(two int8 planes), f16 (GPU) or f32 (CPU, exact)")
      ->check(CLI::IsMember({"auto", "i8", "i8x2", "f16", "f32"}))
      ->group("Machine");
  command.add_option("--device", device, "cpu, cuda, cuda:N or auto: a GPU if there is one")
      ->capture_default_str()
      ->type_name("DEVICE")
      ->group("Machine");
  recipe.add_to(command, "--quantize");
  machine.add_isa_to(command);
}

std::optional<Recipe> ModelOptions::wanted_recipe() const {
  recipe.refuse_without_type();
  if (!recipe.given()) return std::nullopt;
  return recipe.recipe();
}

LoadedModel ModelOptions::load(ThreadPool& pool) const {
  const std::optional<Recipe> wanted = wanted_recipe();
  return with_progress(pool, chosen_device(), parse_activation_mode(activations),
                       [&](const LoadOptions& options) {
                         return load_model(path, wanted ? &*wanted : nullptr, options);
                       });
}

std::unique_ptr<WeightSource> ModelOptions::open(ThreadPool& pool) const {
  const std::optional<Recipe> wanted = wanted_recipe();
  return open_weights(path, wanted ? &*wanted : nullptr, pool);
}

Model ModelOptions::load_weights_only(WeightSource& source, ThreadPool& pool) const {
  return with_progress(pool, chosen_device(), parse_activation_mode(activations),
                       [&](const LoadOptions& options) { return load_weights(source, options); });
}

Device ModelOptions::chosen_device() const {
  return parse_device(device == "auto" && activations == "f32" ? "cpu" : device);
}

LoadedModel ModelOptions::load_plain(const std::string& path, const Device& device,
                                     ThreadPool& pool) {
  return with_progress(pool, device, ActivationMode::automatic, [&](const LoadOptions& options) {
    return load_model(path, nullptr, options);
  });
}

}  // namespace walsh::cli
