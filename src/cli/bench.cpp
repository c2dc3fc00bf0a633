// `walsh bench MODEL`: prompt processing and generation speed, next to what the machine can do.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/cuda/device.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "cli/bench_count.h"
#include "cli/bench_formats.h"
#include "cli/bench_kernels.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "kernels/cuda/probe.h"
#include "kernels/machine_probe.h"
#include "model/session.h"
#include "model/synthetic.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

struct Options {
  ModelOptions model;
  std::vector<int64_t> prompts = {512}, generations = {128}, parallel = {1};
  std::vector<int> threads;
  std::string synthetic, type = "tq3", end_type, output = "md";
  int repetitions = 5;
  bool kernels = false, formats = false, count = false;
  std::vector<std::string> types, shapes = {"2048x5632", "4096x14336"};
  std::vector<int64_t> batches = {1, 8, 64, 512};
};

std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab))));
  return tokens;
}

// Evaluates a prompt at once; only its last token needs logits.
void process_prompt(Session& session, const std::vector<int32_t>& tokens) {
  session.forward(
      tokens, [](int64_t, std::span<const float>) {}, static_cast<int64_t>(tokens.size()) - 1);
}

// The device chooses its own next tokens, one step ahead of the host, as generate() does.
void generate_on_device(Session& session, std::span<const int32_t> first, size_t steps) {
  for (int64_t s = 0; s < session.sequences(); ++s)
    session.start_sampling({}, {}, s);
  session.submit_decode(first);
  for (size_t i = 1; i < steps; ++i) {
    InterruptGuard::check();
    session.submit_chosen();
    session.take();
  }
  session.take();
}

// Evaluates one token of every sequence after the other, as generation does.
void generate_tokens(Session& session, const std::vector<int32_t>& tokens) {
  const auto count = static_cast<size_t>(session.sequences());
  const std::span<const int32_t> all(tokens);
  if (session.can_sample()) {
    generate_on_device(session, all.first(count), tokens.size() / count);
    return;
  }
  for (size_t i = 0; i < tokens.size(); i += count) {
    InterruptGuard::check();
    session.decode(all.subspan(i, count), [](int64_t, std::span<const float>) {});
  }
}

class ModelBench {
 public:
  ModelBench(const Model& model, const Options& options, BenchResult common)
      : model_(model), options_(options), common_(std::move(common)) {}

  void run(std::vector<BenchResult>& results) {
    for (const int64_t n : options_.prompts) {
      if (n > 0) results.push_back(measure(fmt::format("pp{}", n), n, 1, process_prompt));
      // The weights are read once for the whole prompt.
      if (n > 0) results.back().bytes_per_token /= static_cast<double>(n);
    }
    for (const int64_t n : options_.generations) {
      for (const int64_t sequences : options_.parallel) {
        if (n == 0) continue;
        const std::string name =
            sequences == 1 ? fmt::format("tg{}", n) : fmt::format("tg{}@{}", n, sequences);
        results.push_back(measure(name, n, sequences, generate_tokens));
        results.back().bytes_per_token /= static_cast<double>(sequences);
      }
    }
  }

 private:
  using Work = void (*)(Session&, const std::vector<int32_t>&);

  BenchResult measure(const std::string& test, int64_t n, int64_t sequences, Work work) {
    BenchResult result = common_;
    result.test = test;
    SessionOptions session_options;
    session_options.max_positions = n;
    session_options.sequences = sequences;
    Session session(model_, session_options);
    for (int r = -1; r < options_.repetitions; ++r) {  // the first one warms up
      InterruptGuard::check();
      session.reset();
      const auto tokens =
          random_tokens(n * sequences, model_.config.vocab, static_cast<uint64_t>(r + 2));
      const Stopwatch watch;
      work(session, tokens);
      const auto count = static_cast<double>(tokens.size());
      if (r >= 0) result.tokens_per_s.push_back(count / watch.seconds());
    }
    return result;
  }

  const Model& model_;
  const Options& options_;
  BenchResult common_;
};

// Weights that one token is multiplied with, and weights of the whole model.
uint64_t multiplied_weights(const Model& model) {
  const auto size = [](const Linear& l) { return static_cast<uint64_t>(l.rows * l.cols); };
  uint64_t sum = size(model.head);
  for (const Layer& layer : model.layers) {
    for (const Linear* linear : linears(layer))
      sum += size(*linear);
  }
  return sum;
}

uint64_t all_weights(const Model& model) {
  const uint64_t embedding = static_cast<uint64_t>(model.embedding.rows * model.embedding.cols);
  return multiplied_weights(model) + (model.config.tied_head ? 0 : embedding);
}

std::unique_ptr<WeightSource> open(const Options& options, ThreadPool& pool) {
  if (options.synthetic.empty()) return options.model.open(pool);
  const Format& type = get_format(options.type);
  const Format& ends = options.end_type.empty() ? type : get_format(options.end_type);
  return std::make_unique<SyntheticSource>(options.synthetic, SyntheticTypes{&type, &ends, &ends});
}

// What the model's device can do at most.
void measure_machine(const Model& model, ThreadPool& pool, BenchResult& result) {
  if (model.device.cuda) {
    const cuda::DeviceInfo info = cuda::use_device(model.device.index);
    result.device = fmt::format("{} {}", model.device.name(), info.name);
    result.bandwidth = cuda::measure_read_bandwidth();
    result.peak = cuda::measure_bf16_peak();
    result.peak_kind = "bf16";
    return;
  }
  result.device = fmt::format("CPU {}", isa_name(current_isa()));
  result.bandwidth = measure_read_bandwidth(pool);
  result.peak = measure_int8_peak(pool);
}

// What needs the largest cache.
ModelUse largest_use(const Options& options) {
  ModelUse largest{.positions = 1};
  const auto add = [&](int64_t positions, int64_t sequences) {
    if (positions * sequences > largest.positions * largest.sequences)
      largest = {positions, sequences};
  };
  for (const int64_t n : options.prompts)
    add(n, 1);
  for (const int64_t n : options.generations)
    for (const int64_t sequences : options.parallel)
      add(n, sequences);
  return largest;
}

void bench_threads(const Options& options, int threads, std::vector<BenchResult>& results) {
  ThreadPool pool(threads);
  const std::unique_ptr<WeightSource> source = open(options, pool);
  const Stopwatch watch;
  const Model model = options.model.load_weights_only(*source, largest_use(options), pool);
  BenchResult common;
  common.load_seconds = watch.seconds();
  common.model = source->path();
  common.type = model.type_name();
  common.bytes = model.model_bytes();
  common.params = all_weights(model);
  common.bpw = model.bits_per_weight();
  common.threads = pool.size();
  common.bytes_per_token = static_cast<double>(model.bytes_per_token());
  common.macs_per_token = static_cast<double>(multiplied_weights(model));
  measure_machine(model, pool, common);
  ModelBench(model, options, std::move(common)).run(results);
}

// Nothing is timed: the arithmetic of a model's layers, or of single matrices.
std::string count(const Options& options) {
  if (options.model.path.empty() && options.synthetic.empty()) {
    return count_matrices(options.types, options.shapes, options.output);
  }
  ThreadPool pool(options.threads.empty() ? 0 : options.threads.front());
  const std::unique_ptr<WeightSource> source = open(options, pool);
  return count_model(options.model.load_weights_only(*source, {}, pool), options.output);
}

int bench(const Options& options) {
  options.model.machine.apply();
  const InterruptGuard interrupt;
  if (options.count) {
    fmt::print("{}", count(options));
    return 0;
  }
  const std::vector<int> threads = options.threads.empty() ? std::vector<int>{0} : options.threads;
  if (options.formats) {
    ThreadPool pool(threads.front());
    fmt::print("{}", bench_formats({options.types, options.repetitions, options.output}, pool));
    return 0;
  }
  if (options.kernels) {
    ThreadPool pool(threads.front());
    fmt::print("{}", bench_kernels({options.types, options.shapes, options.batches,
                                    options.repetitions, options.output},
                                   pool));
    return 0;
  }
  if (options.model.path.empty() == options.synthetic.empty()) {
    throw Error(ErrorCode::usage, "walsh bench",
                "needs MODEL, --synthetic, --kernels or --formats");
  }
  std::vector<BenchResult> results;
  for (const int count : threads)
    bench_threads(options, count, results);
  fmt::print("{}", bench_text(results, options.output));
  return 0;
}

void add_kernel_options(CLI::App& command, Options& options) {
  const std::string group = "Kernels";
  command.add_flag("--kernels", options.kernels, "Time single matrix products")->group(group);
  command
      .add_flag("--formats", options.formats,
                "Time encoding on one core, decoding from its second-level cache and reading from "
                "memory, for all formats or --types")
      ->group(group);
  command.add_option("--types", options.types, "Formats, by comma")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);
  command.add_option("--shapes", options.shapes, "KxN, by comma")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str()
      ->group(group);
  command.add_option("--batches", options.batches, "Vectors per product, by comma")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16))
      ->group(group);
}

}  // namespace

Action add_bench(CLI::App& command) {
  const auto options = std::make_shared<Options>();
  options->model.add_model_to(command, false);
  const auto tokens = CLI::Range(0, 1 << 20);
  command.add_option("-p,--n-prompt", options->prompts, "Prompt lengths, by comma; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str()
      ->check(tokens);
  command.add_option("-n,--n-gen", options->generations, "Generated tokens, by comma; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str()
      ->check(tokens);
  command.add_option("--parallel", options->parallel, "Sequences generated together, by comma")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  command.add_option("-t,--threads", options->threads, "Numbers of threads, by comma")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1024));
  command.add_option("-r,--repetitions", options->repetitions, "Repetitions of each test")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command.add_option("-o,--output", options->output, "md, csv or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"md", "csv", "json"}));
  command
      .add_option("--synthetic", options->synthetic,
                  "A random model of this shape: 1b, 2b, 8b, 70b, tiny")
      ->type_name("SHAPE");
  command.add_option("--type", options->type, "Format of the synthetic model")
      ->capture_default_str()
      ->type_name("TYPE");
  command
      .add_option("--end-type", options->end_type,
                  "Format of its embedding and head (default: as --type)")
      ->type_name("TYPE");
  command.add_flag("--count", options->count,
                   "Multiplications, additions, look-ups and rotations per token of each layer "
                   "instead of times; without a model those of --types and --shapes");
  add_kernel_options(command, *options);
  return [options] { return bench(*options); };
}

}  // namespace walsh::cli
