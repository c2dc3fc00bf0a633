// The flags that every command shares: threads, instruction set, and how a model is loaded.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "cli/recipe_options.h"
#include "formats/weight_source.h"
#include "model/model.h"
#include "rotate/plan.h"
#include "text/tokenizer.h"

namespace walsh::cli {

struct MachineOptions {
  int threads = 0;  // 0: one per core
  std::string isa;  // empty: the best, or WALSH_ISA

  void add_to(CLI::App& command);
  void add_isa_to(CLI::App& command);
  void apply() const;  // chooses the instruction set; throws usage
};

// The plan that the quantizer asks the model layer for.
ModelPlan read_plan(std::string_view config_json, std::string_view where);

// A model ready to run, with the texts that say how to use it.
struct LoadedModel {
  std::string path;
  Model model;
  Tokenizer tokenizer;
  std::vector<int32_t> stop_tokens;  // of generation_config.json, else of the config
  std::string generation_config;     // JSON text, may be empty
  double load_seconds = 0;
};

// MODEL, --activations, and --quantize with its refinements.
struct ModelOptions {
  std::string path;
  std::string activations = "auto";
  RecipeOptions recipe;
  MachineOptions machine;

  void add_to(CLI::App& command);
  // Without -t, for a command that has its own.
  void add_model_to(CLI::App& command, bool model_required);
  // Loads the model, compressing it if --quantize was given. A bar shows progress on a terminal.
  LoadedModel load(ThreadPool& pool) const;
  // The two steps of load for those who need no tokenizer.
  std::unique_ptr<WeightSource> open(ThreadPool& pool) const;
  Model load_weights_only(WeightSource& source, ThreadPool& pool) const;
  // Loads another folder or file as it is: a reference, in exact arithmetic.
  static LoadedModel load_plain(const std::string& path, ThreadPool& pool);
};

}  // namespace walsh::cli
