#include "cli/serve_models.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "api/draft_model.h"
#include "base/cuda/device.h"
#include "base/memory.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "io/error_output.h"
#include "io/printable.h"
#include "io/system_error.h"
#include "serve/model_choice.h"
#include "walsh/error.h"
#include "weights/hub_cache.h"

namespace walsh::cli {

void ServedModels::add_to(Command& command) {
  command.add(
      "MODEL,-m,--model", &paths,
      "A walsh file, a Hugging Face folder or its name (walsh list), a GGUF file of "
      "llama.cpp, or a folder of these; several are loaded when they are asked for; also -m "
      "MODEL",
      {.replacement = found_model});
  const FlagGroup group = command.group("Several models");
  group.add("--models-dir", &folders,
            "Folder whose GGUF files and folders are models, also Hugging Face's cache",
            {.value = "DIR"});
  group.add("--models-memory", &memory,
            "Memory of all loaded models together with their caches, such as 24GiB; the least "
            "recently used one is unloaded for another [what is available at the start]",
            {.value = "SIZE"});
  group.add(
      "--keep-alive", &keep_alive,
      "Time after which an unused model is unloaded, such as 5m or 300 (seconds); 0: at once, "
      "-1: never",
      {.value = "TIME", .shown = true});
}

bool ServedModels::single() const {
  if (paths.empty() && folders.empty())
    throw Error(ErrorCode::usage, "command line", "MODEL is required");
  return folders.empty() && paths.size() == 1 && !is_folder_of_models(paths.front());
}

void ServedModels::note_for_single() const {
  if (!memory.empty() || keep_alive != kKeepAlive)
    print_note("--models-memory and --keep-alive: a single model is loaded at the start and stays");
}

std::vector<ModelPlace> ServedModels::places() const {
  std::vector<ModelPlace> places;
  const auto add_folder = [&](const std::string& folder) {
    const std::vector<ModelPlace> found = models_in(folder);
    if (found.empty())
      throw Error(ErrorCode::usage, folder, "has neither a model nor a folder of one");
    places.insert(places.end(), found.begin(), found.end());
  };
  for (const std::string& path : paths) {
    if (::access(path.c_str(), F_OK) != 0) throw_system_error(path, "open", errno);
    if (is_folder_of_models(path)) {
      add_folder(path);
    } else {
      places.push_back({model_name(path), path, bytes_of_files(path)});
    }
  }
  for (const std::string& folder : folders)
    add_folder(folder);
  return places;
}

PoolOptions ServedModels::pool_options(const Device& device) const {
  PoolOptions options;
  const std::optional<double> keep = parse_duration(keep_alive);
  if (!keep)
    throw Error(ErrorCode::usage, "--keep-alive",
                printable(keep_alive) + " is no time such as 5m, 300 or -1");
  options.keep_seconds = *keep;
  const uint64_t available =
      device.cuda ? cuda::use_device(device.index).free_bytes : available_memory();
  if (!memory.empty()) {
    options.most_bytes = parse_bytes(memory, "--models-memory");
  } else if (available > 0) {
    options.most_bytes = available;
  }
  options.tell = [](const std::string& what) {
    write_error_output("walsh: " + one_line(what) + "\n", std::chrono::milliseconds(200));
  };
  return options;
}

void refuse_for_several(const ModelOptions& options, const std::string& alias) {
  const std::string& drafts = options.speculation;
  const LoadOptions load = options.loading({});
  const bool in_parts = load.gpu_layers > 0 && load.gpu_layers != kAllLayers;
  if (load.device.cuda && (in_parts || load.cpu_experts > 0 || load.device_bytes > 0))
    throw Error(ErrorCode::usage, "--gpu-layers, --cpu-experts, --device-memory",
                "each of several models is on the GPU as a whole: give --models-memory, or "
                "--device cpu");
  if (!alias.empty()) throw Error(ErrorCode::usage, "--alias", "names one model, not several");
  if (drafts != "none" && !options.looks_up() && !ahead_depth(drafts))
    throw Error(ErrorCode::usage, "--spec",
                "a smaller model drafts for one model, not for several: ngram and mtp do");
}

}  // namespace walsh::cli
