// `walsh quantize IN OUT --type T` rotates, quantizes and packs a checkpoint into a file.
#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/calibrate.h"
#include "api/missing_tokenizer.h"
#include "api/outputs.h"
#include "base/device.h"
#include "base/spelling.h"
#include "base/thread_pool.h"
#include "cli/allocate_options.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/recipe_options.h"
#include "cli/terminal.h"
#include "cli/type_choice.h"
#include "codec/codec.h"
#include "codec/encode/bounds.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "io/staged_folder.h"
#include "quantize/pipeline/pipeline.h"
#include "quantize/recipe/recipe_file.h"
#include "walsh/error.h"
#include "weights/hub_cache.h"

namespace walsh::cli {
namespace {

struct Options {
  std::string input, output;
  RecipeOptions recipe;
  AllocateFlags allocation;
  MachineOptions machine;
  CalibrationRequest calibration;
  std::string device = "auto", save_recipe, output_format = "gguf", shard_size;
  bool dry_run = false, json = false, verbose = false;

  // Returns whether neither an output nor a type was given; then the command shows the types to
  // choose from.
  bool asks_for_choice() const { return output.empty() && !recipe.given() && !allocation.given(); }

  OutputOptions wanted() const {
    OutputOptions result = {.kind = parse_output_kind(output_format)};
    if (shard_size.empty()) return result;
    if (result.kind != OutputKind::folder)
      throw Error(ErrorCode::usage, "--shard-size", "works only with --output-format hf");
    result.shard_bytes = parse_bytes(shard_size, "--shard-size");
    return result;
  }
};

std::string shape_text(const TensorPlan& tensor) {
  return tensor.site < 0 ? fmt::format("{}", tensor.cols)
                         : fmt::format("{} x {}", tensor.rows, tensor.cols);
}

// Returns a line such as "[ 12/291] NAME ROWS x COLS bf16 -> tq3 NMSE 0.0316".
std::string tensor_line(const TensorPlan& tensor, size_t index, size_t count, double nmse) {
  const int width = static_cast<int>(std::to_string(count).size());
  std::string line =
      fmt::format("[{:>{}}/{}] {:<45} {:>14}  {} -> {}", index, width, count, tensor.name,
                  shape_text(tensor), dtype_name(tensor.source), tensor.format->name);
  if (nmse > 0) line += fmt::format("  NMSE {:.4g}", nmse);
  return line;
}

// Returns "", or ", 3 min left".
std::string time_left(const QuantizeProgress& p) {
  constexpr double kWorthTelling = 10;
  if (p.seconds_left < kWorthTelling) return "";
  return ", " + human_seconds(p.seconds_left) + " left";
}

// Averages the NMSE of the linear layers, weighted by their numbers of weights.
class LinearError {
 public:
  void add(const TensorPlan& tensor, double nmse) {
    if (!tensor.linear) return;
    const double weights = static_cast<double>(tensor.rows) * static_cast<double>(tensor.cols);
    sum_ += weights * nmse;
    weights_ += weights;
  }
  double mean() const { return weights_ > 0 ? sum_ / weights_ : 0; }

 private:
  double sum_ = 0, weights_ = 0;
};

// Replaces the numbers in a name: "model.layers.*.mlp.down_proj.weight".
std::string kind_of(const std::string& name) {
  std::string kind;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool begins = i == 0 || name[i - 1] == '.';
    size_t end = i;
    while (begins && end < name.size() && name[end] >= '0' && name[end] <= '9')
      ++end;
    if (end > i && (end == name.size() || name[end] == '.')) {
      kind += '*';
      i = end - 1;
    } else {
      kind += name[i];
    }
  }
  return kind;
}

// Tensors whose names differ only in numbers are one kind.
struct TensorKind {
  std::string name;
  const TensorPlan* first;
  uint64_t count = 0, bytes = 0;
};

std::vector<TensorKind> kinds_of(const std::vector<TensorPlan>& tensors) {
  std::vector<TensorKind> kinds;
  std::map<std::string, size_t> known;
  for (const TensorPlan& tensor : tensors) {
    const std::string name = kind_of(tensor.name);
    const std::string key = fmt::format("{} {} {} {}", name, shape_text(tensor),
                                        dtype_name(tensor.source), tensor.format->name);
    const auto [at, fresh] = known.try_emplace(key, kinds.size());
    if (fresh) kinds.push_back({name, &tensor});
    kinds[at->second].count += 1;
    kinds[at->second].bytes += tensor.bytes();
  }
  return kinds;
}

void print_kinds(const std::vector<TensorPlan>& tensors) {
  print_result("{:<48} {:>7} {:>14}  {:<14} {:>10}\n", "tensors", "number", "shape", "type",
               "bytes");
  for (const TensorKind& kind : kinds_of(tensors)) {
    const TensorPlan& t = *kind.first;
    print_result("{:<48} {:>7} {:>14}  {:<14} {:>10}\n", kind.name, kind.count, shape_text(t),
                 fmt::format("{} -> {}", dtype_name(t.source), t.format->name),
                 human_bytes(kind.bytes));
  }
  print_result("\n");
}

nlohmann::ordered_json tensors_json(const std::vector<TensorPlan>& tensors) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const TensorPlan& t : tensors) {
    list.push_back({{"name", t.name},
                    {"shape", {t.rows, t.cols}},
                    {"source_type", dtype_name(t.source)},
                    {"type", t.format->name},
                    {"bytes", t.bytes()}});
  }
  return list;
}

// Prints what was written. `tensors` are those that a dry run would write.
void print_summary(const QuantizeSummary& s, const Options& options, double nmse, double seconds,
                   const std::vector<TensorPlan>* tensors = nullptr) {
  if (options.json) {
    nlohmann::ordered_json missed = nlohmann::ordered_json::array();
    for (const MissedBound& m : s.missed)
      missed.push_back({{"tensor", m.tensor}, {"nmse", m.nmse}, {"bound", m.format->bound}});
    nlohmann::ordered_json json = {
        {"file", options.output},
        {"bytes", s.file_bytes},
        {"bpw", s.bits_per_weight()},
        {"linear_weights", s.linear_weights},
        {"weights", s.all_weights},
        {"nmse", options.dry_run ? nlohmann::ordered_json() : nlohmann::ordered_json(nmse)},
        {"missed_bounds", std::move(missed)},
        {"dry_run", options.dry_run},
        {"seconds", seconds}};
    if (tensors != nullptr) json["tensors"] = tensors_json(*tensors);
    print_result("{}\n", format_json(json, 2));
    return;
  }
  print_result("{}: {} ({} bytes), {} weights, {} of them in linear layers at {:.4f} bits",
               options.dry_run
                   ? "would write " + (options.output.empty() ? "a file" : options.output)
                   : options.output,
               human_bytes(s.file_bytes), s.file_bytes, human_count(s.all_weights),
               human_count(s.linear_weights), s.bits_per_weight());
  if (!options.dry_run) print_result(", NMSE {:.4g}, {:.1f} s", nmse, seconds);
  print_result("\n");
}

int dry_run(const Options& options, Compressor& source) {
  if (!options.json && !options.verbose) print_kinds(source.tensors());
  if (!options.json && options.verbose) {
    size_t index = 0;
    for (const TensorPlan& tensor : source.tensors()) {
      print_result("{}  {}\n", tensor_line(tensor, ++index, source.tensors().size(), 0),
                   human_bytes(tensor.bytes()));
    }
  }
  print_summary(predict(source, options.wanted()), options, 0, 0, &source.tensors());
  return 0;
}

// Returns the recipe from the flags, or from an allocation, with which it then fills `allocation`.
Recipe choose_recipe(const Options& options, const CalibrationRequest& calibration,
                     ThreadPool& pool, std::optional<Allocation>& allocation) {
  options.allocation.refuse_without_target();
  if (!options.allocation.given()) {
    if (!options.recipe.given()) {
      throw Error(ErrorCode::usage, "--type",
                  "a type is needed; `walsh quantize MODEL` alone shows which fit this machine");
    }
    Recipe recipe = options.recipe.recipe(options.output_format);
    print_notes(name_notes(recipe));
    print_notes(options.recipe.idle_flags(recipe));
    return recipe;
  }
  if (options.recipe.given()) {
    throw Error(ErrorCode::usage, "--bpw, --size",
                "choose the types themselves: leave out --type and --recipe");
  }
  const Recipe base =
      options.recipe.recipe_of(options.allocation.first_candidate(), options.output_format);
  allocation = options.allocation.allocate(options.input, base, calibration, pool);
  if (!options.json) write_result(allocation_text(*allocation));
  return allocation->chosen().recipe;
}

void save_recipe(const Options& options, const Recipe& recipe,
                 const std::optional<Allocation>& allocation) {
  if (options.save_recipe.empty()) return;
  Json about;
  if (allocation) about = {{"allocation", allocation_json(*allocation)}};
  write_file(options.save_recipe, format_recipe(recipe, about));
}

// Checks files before a search that may take hours.
void check_files(const Options& options) {
  std::vector<std::string> inputs = options.allocation.inputs();
  inputs.push_back(options.calibration.file());
  inputs.push_back(options.recipe.file());
  std::vector<std::string> outputs = options.allocation.outputs();
  outputs.push_back(options.save_recipe);
  std::string new_folder;
  if (options.wanted().kind == OutputKind::folder) {
    if (!options.dry_run) check_new_folder(options.output);
    new_folder = options.output;
  } else if (!options.dry_run) {
    outputs.push_back(options.output);
  }
  check_outputs(outputs, options.input, std::move(inputs), new_folder);
}

void need_output(const Options& options) {
  if (options.output == "-") {
    throw Error(ErrorCode::usage, "OUT",
                "a model cannot be written to standard output; ./- names a file in this folder");
  }
  if (!options.output.empty()) return;
  throw Error(ErrorCode::usage, "OUT",
              fmt::format("a file to write is needed, as in: walsh quantize {} {}", options.input,
                          output_name(options.input, "tq4")));
}

// Says once where an interrupted run is resumed.
class ResumeNote {
 public:
  // Returns the note that follows a tensor, which is usually empty.
  std::string text(const QuantizeProgress& p) {
    if (p.resumed) {
      ++resumed_;
      return resumed_ == 1 ? "an earlier run was interrupted: its encoded tensors are reused" : "";
    }
    const bool first = resumed_ > 0 && !told_ && codec_of(*p.tensor->format).slow_to_encode;
    if (!first) return "";
    told_ = true;
    return fmt::format("reused {}; encoding continues with {} ({} of {})",
                       counted(resumed_, "tensor"), p.tensor->name, p.index, p.count);
  }

 private:
  int64_t resumed_ = 0;
  bool told_ = false;
};

// Reads the calibration text, or shows how far the model is with writing it.
void read_text(const Options& options, CalibrationRequest& calibration, ThreadPool& pool) {
  ProgressBar bar(is_terminal(STDERR_FILENO));
  calibration.writing = [&](int64_t done, int64_t total) {
    bar.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total),
               "the model writes its calibration text");
  };
  calibration.read(options.input, pool);
  calibration.writing = {};
  bar.clear();
}

int quantize(const Options& options) {
  options.machine.apply();
  const InterruptGuard interrupt;
  ThreadPool pool(options.machine.threads);
  if (options.asks_for_choice()) {
    options.recipe.refuse_without_type();
    options.allocation.refuse_without_target();
    write_result(type_choice(options.input, options.json, pool));
    return 0;
  }
  if (!options.dry_run) need_output(options);
  if (options.verbose && !options.dry_run)
    print_note("--verbose changes nothing: it goes with --dry-run");
  check_files(options);
  CalibrationRequest calibration = options.calibration;
  calibration.check = InterruptGuard::check;
  calibration.device = parse_device(options.device);
  read_text(options, calibration, pool);
  std::optional<Allocation> allocation;
  const Recipe recipe = choose_recipe(options, calibration, pool, allocation);
  save_recipe(options, recipe, allocation);
  InterruptGuard::check();
  const auto source = open_calibrated(options.input, recipe, calibration, pool);
  print_notes(source->notes());
  if (const std::string missing = missing_tokenizer(*source); !missing.empty())
    print_note(options.input + ": " + missing);
  if (options.dry_run) return dry_run(options, *source);
  if (const Device device = parse_device(options.device); device.cuda) {
    source->use_gpu(device.index);
  }

  const Stopwatch watch;
  const bool bar_wanted = is_terminal(STDERR_FILENO);
  ProgressBar bar(bar_wanted);
  LinearError error;
  ResumeNote resume;
  const auto progress = [&](const QuantizeProgress& p) {
    InterruptGuard::check();
    error.add(*p.tensor, p.nmse);
    if (const std::string text = resume.text(p); !text.empty()) {
      bar.clear();
      print_note(text);
    }
    if (bar_wanted) {
      bar.update(p.index, p.count, p.tensor->name + time_left(p));
    } else {
      message("{}{}{}\n", tensor_line(*p.tensor, p.index, p.count, p.nmse),
              p.resumed ? "  resumed" : "", time_left(p));
    }
  };
  const auto note = [&](const std::string& text) {
    bar.clear();
    print_note(text);
  };
  const QuantizeSummary summary =
      quantize_to_file(*source, options.output, progress, note, options.wanted());
  bar.clear();
  print_summary(summary, options, error.mean(), watch.seconds());
  for (const MissedBound& m : summary.missed)
    print_warning(missed_bound_text(m.tensor, *m.format, m.nmse));
  return 0;
}

}  // namespace

Action add_quantize(Command& command) {
  const auto options = std::make_shared<Options>();
  command.footer = type_list();
  command.add("IN", &options->input,
              "Hugging Face folder with safetensors or its name (walsh list), or a GGUF file of "
              "llama.cpp",
              {.required = true, .replacement = found_model});
  command.add("OUT", &options->output,
              "File or folder to write; without it and without a type, the command shows the types "
              "and which of them fit this machine");
  command.add("--output-format", &options->output_format,
              "gguf: one file; hf: a folder that transformers loads, too (docs/formats/folder.md)",
              {.value = "gguf|hf", .shown = true});
  command.add("--shard-size", &options->shard_size,
              "Size of the weight files in a folder, such as 2GiB (default: 5 GB)",
              {.value = "SIZE"});
  options->recipe.add_to(command, "--type");
  const FlagGroup compression = command.group("Compression");
  compression.add("--save-recipe", &options->save_recipe, "Save the recipe to a file, for --recipe",
                  {.value = "FILE"});
  options->allocation.add_to(command);
  options->machine.add_to(command);
  const Flag& calibrate = compression.add(
      "--calibrate", &options->calibration.text,
      "Calibrate with this text, with an imatrix of llama.cpp (GGUF), or with a text that "
      "the model writes itself (self): less error, more time",
      {.value = "FILE|self"});
  compression.add(
      "--calibrate-tokens", &options->calibration.tokens,
      "Tokens of that text to use (default: 98304, or all if it has fewer; 32768 of self)",
      {.range = between(int64_t{1}, int64_t{1} << 40), .needed = &calibrate});
  compression.add(
      "--curvature", &options->calibration.curvature,
      "Folder that python -m walsh.curvature wrote for that text: lowers the error further",
      {.value = "DIR", .needed = &calibrate});
  command.group("Machine").add(
      "--device", &options->device,
      "Device that encodes scalar and trellis formats and runs the texts of --calibrate and "
      "--bpw: cpu, cuda, cuda:N or auto (a GPU if there is one); without these all give the "
      "same bytes",
      {.value = "DEVICE", .shown = true});
  command.add("--dry-run", &options->dry_run, "Print what would be written, and write nothing");
  command.add("--verbose", &options->verbose, "With --dry-run: a line for every tensor");
  command.add("--json", &options->json, "Summary as JSON; of --dry-run with all tensors");
  return [options] { return quantize(*options); };
}

}  // namespace walsh::cli
