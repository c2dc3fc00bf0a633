// Defines the flags that all commands share. They choose threads and instruction set and say how a
// model is loaded.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/load.h"
#include "base/thread_pool.h"
#include "cli/flags.h"
#include "cli/recipe_options.h"
#include "codec/weight_source.h"
#include "model/model.h"
#include "walsh/engine.h"

namespace walsh::cli {

struct MachineOptions {
  int threads = 0;  // 0 means one per core
  std::string isa;  // an empty name means WALSH_ISA or the best

  void add_to(Command& command);
  void add_threads_to(Command& command);
  void add_isa_to(Command& command);
  void apply() const;  // it chooses the instruction set; throws usage
};

// Returns the names that --activations takes.
std::vector<std::string> activation_modes();

// Adds --pooling, for embeddings.
void add_pooling(Command& command, std::string& pooling);

// Says what a model will be used for; LoadOptions are made from it.
struct ModelUse {
  int64_t positions = 0, sequences = 1;
  int64_t texts = 1;  // this many texts are continued together
};

// Holds MODEL, --activations, and --quantize with its options.
struct ModelOptions {
  std::string path;
  std::string activations = "auto";
  std::string device = "auto";
  // This limits GPU memory, such as 24GiB; an empty text means all that is free.
  std::string device_memory;
  // These are "auto" or numbers, with the meaning that they have in LoadOptions.
  std::string gpu_layers = "auto", cpu_experts = "auto";
  std::string cache_keys = "f16", cache_values = "f16";
  int64_t cache_window = CacheTypes().window;
  bool quiet = false;                 // neither notes nor progress are printed
  const Flag* window_flag = nullptr;  // this is --kv-window
  // Texts are drafted by "none", "ngram", "mtp" or a smaller model at this path.
  std::string speculation = "none";
  RecipeOptions recipe;
  MachineOptions machine;

  void add_to(Command& command);
  // Adds the flags without MODEL, for a command that takes several models.
  void add_loading_to(Command& command);
  // Adds the flags without -t, for a command that defines it itself.
  void add_model_to(Command& command, bool model_required);
  // Adds --spec, for commands that generate text.
  void add_speculation_to(const FlagGroup& group);
  CacheTypes cache() const;
  bool looks_up() const { return speculation == "ngram"; }
  // Opens the model to generate text with these options, compressing it if --quantize was given.
  // Shows a progress bar on a terminal.
  Engine open_engine(const ModelUse& use, const GenerationOptions& generation,
                     const TemplateText* chat_template = nullptr, bool for_batches = false) const;
  // Loads the model for measuring or serving.
  LoadedModel load(const ModelUse& use, ThreadPool& pool,
                   const TemplateText* chat_template = nullptr,
                   const GenerationOptions* generation = nullptr) const;
  // These are the two steps of load(), for callers that need no tokenizer.
  std::unique_ptr<WeightSource> open(ThreadPool& pool) const;
  Model load_weights_only(WeightSource& source, const ModelUse& use, ThreadPool& pool) const;
  // Loads another folder or file unchanged, as a reference for `model`.
  static LoadedModel load_plain(const std::string& path, const Device& device,
                                ActivationMode activations, const ModelUse& use, const Model& model,
                                ThreadPool& pool);
  // Returns how a model is loaded whose sessions are used so; the caller sets `pool`.
  LoadOptions loading(const ModelUse& use) const;
  // Returns the device of --device. auto means the first GPU, or the CPU if there is none, for f32
  // and lut activations, and if no layers are to be on a GPU.
  Device chosen_device() const;

 private:
  void add_common_to(Command& command);
  void add_cache_to(Command& command);
  std::string draft_path() const;  // it is empty if no model drafts
  template <class Load>
  auto with_progress(const ModelUse& use, const Load& load) const;
  void tell(const std::vector<std::string>& notes) const;
  void tell_idle_flags(const Model& model) const;
  // Returns the recipe of --quantize if that was given. Throws usage.
  std::optional<Recipe> wanted_recipe() const;
};

}  // namespace walsh::cli
