// `walsh bench MODEL` measures the speed of prompts and generation, compared with the machine's
// limits.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
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
#include "cli/output.h"
#include "cli/terminal.h"
#include "kernels/cuda/probe.h"
#include "kernels/machine_probe.h"
#include "model/positions.h"
#include "model/routing.h"
#include "model/session.h"
#include "model/split.h"
#include "model/synthetic.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

struct Options {
  ModelOptions model;
  std::vector<int64_t> prompts = {512}, generations = {128}, parallel = {1}, depths = {0};
  std::vector<int> threads;
  std::string synthetic, end_type, output = "md";
  std::vector<std::string> type = {"tq3"};
  int repetitions = 5;
  bool kernels = false, formats = false, count = false;
  std::vector<std::string> types, shapes = {"2048x5632", "4096x14336"};
  std::vector<int64_t> batches = {1, 8, 64, 512};
};

// A test is a row of the table. It evaluates n tokens of each sequence, after `depth` tokens that
// are in the cache.
struct Test {
  bool prompt;
  int64_t depth, n, sequences;

  int64_t positions() const { return depth + n; }
};

// Returns the name that llama-bench has for the test.
std::string name_of(const Test& test) {
  std::string name = fmt::format("{}{}", test.prompt ? "pp" : "tg", test.n);
  if (test.sequences > 1) name += fmt::format("@{}", test.sequences);
  if (test.depth > 0) name += fmt::format(" @ d{}", test.depth);
  return name;
}

std::vector<Test> chosen_tests(const Options& options) {
  std::vector<Test> tests;
  const auto add = [&](const Test& test) {
    if (test.n > 0) tests.push_back(test);
  };
  for (const int64_t depth : options.depths) {
    for (const int64_t n : options.prompts)
      add({true, depth, n, 1});
    for (const int64_t n : options.generations)
      for (const int64_t sequences : options.parallel)
        add({false, depth, n, sequences});
  }
  return tests;
}

std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab))));
  return tokens;
}

// Evaluates `depth` tokens of every sequence in pieces, between which it can be interrupted.
void fill_cache(Session& session, int64_t depth) {
  constexpr size_t kPiece = 512;
  const auto tokens = random_tokens(depth, session.model().config.vocab, 0);
  for (int64_t s = 0; s < session.sequences(); ++s) {
    for (size_t i = 0; i < tokens.size(); i += kPiece) {
      InterruptGuard::check();
      const size_t count = std::min(kPiece, tokens.size() - i);
      SequenceTokens piece{s, std::span(tokens).subspan(i, count), 0};
      if (i + count == tokens.size()) piece.snapshot = static_cast<int64_t>(count);
      session.evaluate({&piece, 1}, [](size_t, int64_t, std::span<const float>) {});
    }
  }
}

// Evaluates a prompt at once; only its last token needs logits.
void process_prompt(Session& session, const std::vector<int32_t>& tokens) {
  session.forward(
      tokens, [](int64_t, std::span<const float>) {}, static_cast<int64_t>(tokens.size()) - 1);
}

// Gives every sequence one of the tokens.
std::vector<SequenceTokens> a_token_each(std::span<const int32_t> tokens) {
  std::vector<SequenceTokens> batch;
  for (const int32_t& token : tokens)
    batch.push_back({static_cast<int64_t>(batch.size()), {&token, 1}});
  return batch;
}

// Lets the device choose its own next tokens, one step ahead of the host, as the scheduler does.
void generate_on_device(Session& session, std::span<const int32_t> first, size_t steps) {
  for (int64_t s = 0; s < session.sequences(); ++s)
    session.start_sampling({}, {}, s);
  std::vector<SequenceTokens> batch = a_token_each(first);
  session.submit(batch);
  for (SequenceTokens& item : batch)
    item.tokens = {};
  for (size_t i = 1; i < steps; ++i) {
    InterruptGuard::check();
    session.submit(batch);
    session.take();
  }
  session.take();
}

// Evaluates one token of every sequence at a time, as generation does.
void generate_tokens(Session& session, const std::vector<int32_t>& tokens) {
  const auto count = static_cast<size_t>(session.sequences());
  const std::span<const int32_t> all(tokens);
  if (session.can_sample()) {
    generate_on_device(session, all.first(count), tokens.size() / count);
    return;
  }
  for (size_t i = 0; i < tokens.size(); i += count) {
    InterruptGuard::check();
    session.evaluate(a_token_each(all.subspan(i, count)),
                     [](size_t, int64_t, std::span<const float>) {});
  }
}

// Returns the bytes of keys, values and recurrent states that one pass of a generation test reads,
// with the positions of each sequence in the middle of the test.
double cache_bytes(const Model& model, const Test& test) {
  double sum = 0;
  for (const LayerDesc& layer : model.config.layers) {
    const AttentionDesc& a = layer.attention;
    const DeltaNetDesc& d = layer.delta_net;
    sum += static_cast<double>(d.value_heads * d.key_dim * d.value_dim) * sizeof(float);
    if (!a.present()) continue;
    const AttentionDesc& read =
        a.has_cache() ? a : model.config.layers[static_cast<size_t>(a.cache_of)].attention;
    const int64_t seen = test.depth + test.n / 2 + 1;
    const int64_t positions = seen - a.first_seen(seen - 1);
    sum += static_cast<double>(positions) * position_bytes(read, model.cache);
  }
  return sum;
}

// Measures one row. `common` has the columns that all rows of one model share.
BenchResult measure(const Model& model, const Test& test, int repetitions,
                    const BenchResult& common) {
  BenchResult result = common;
  result.test = name_of(test);
  if (model.cache.coded())
    result.test += fmt::format(" ({}, {})", model.cache.keys->name, model.cache.values->name);
  // The weights are read once per prompt, or once for a token of every sequence.
  result.bytes_per_token /= static_cast<double>(test.prompt ? test.n : test.sequences);
  if (!test.prompt) result.bytes_per_token += cache_bytes(model, test);
  SessionOptions session_options;
  session_options.max_positions = test.positions();
  session_options.sequences = test.sequences;
  if (test.depth > 0) session_options.snapshots = test.sequences;
  Session session(model, session_options);
  for (int64_t s = 1; s < test.sequences; ++s)
    session.open();
  fill_cache(session, test.depth);
  for (int r = -1; r < repetitions; ++r) {  // the run of number -1 warms up
    InterruptGuard::check();
    for (int64_t s = 0; s < test.sequences; ++s)
      session.truncate(test.depth, s);
    const auto tokens =
        random_tokens(test.n * test.sequences, model.config.vocab, static_cast<uint64_t>(r + 2));
    const auto work = test.prompt ? process_prompt : generate_tokens;
    const Stopwatch watch;
    work(session, tokens);
    const auto count = static_cast<double>(tokens.size());
    if (r >= 0) result.tokens_per_s.push_back(count / watch.seconds());
  }
  return result;
}

// Returns how many weights the layers and the head have. If `of_token`, only those count that one
// token uses.
uint64_t weights(const ModelConfig& config, bool of_token) {
  const MatrixDesc& head = config.head;
  auto sum = head.weight.empty() ? 0 : static_cast<uint64_t>(head.rows * head.cols);
  for (const LayerDesc& layer : config.layers) {
    for (const MatrixDesc& m : layer.matrices)
      if (!of_token || layer.of_one_token(m)) sum += static_cast<uint64_t>(m.rows * m.cols);
  }
  return sum;
}

uint64_t all_weights(const ModelConfig& config) {
  const auto embedding = static_cast<uint64_t>(config.vocab * config.hidden);
  return weights(config, false) + (config.tied_head ? 0 : embedding);
}

std::unique_ptr<WeightSource> open(const Options& options, ThreadPool& pool) {
  if (options.synthetic.empty()) return options.model.open(pool);
  SyntheticTypes types{.type = &get_format(options.type.front())};
  types.head_type = options.end_type.empty() ? types.type : &get_format(options.end_type);
  types.embed_type = types.head_type;
  for (size_t i = 1; i < options.type.size(); ++i)
    types.others.push_back(&get_format(options.type[i]));
  return std::make_unique<SyntheticSource>(options.synthetic, types);
}

// Measures the limits of a device that runs a model or a part of it.
void measure_device(const Model& model, BenchResult& result) {
  if (model.device.cuda) {
    const cuda::DeviceInfo info = cuda::use_device(model.device.index);
    result.device = fmt::format("{} {}", model.device.name(), info.name);
    result.bandwidth = cuda::measure_read_bandwidth();
    result.peak = cuda::measure_bf16_peak();
    result.peak_kind = "bf16";
    return;
  }
  result.device = fmt::format("CPU {}", isa_name(current_isa()));
  result.bandwidth = measure_read_bandwidth(model.pool());
  result.peak = measure_int8_peak(model.pool());
}

// Devices that share a model work one after the other, so their times add up.
void measure_machine(const Model& model, BenchResult& result) {
  if (model.parts.empty()) return measure_device(model, result);
  result.device.clear();
  result.peak_kind.clear();
  double reading = 0, computing = 0;
  for (const Model& part : model.parts) {
    BenchResult own;
    measure_device(part, own);
    reading += static_cast<double>(part.bytes_per_token()) / own.bandwidth;
    computing += static_cast<double>(weights(part.config, true)) / own.peak;
    const char* more = result.device.empty() ? "" : " + ";
    const auto layers = std::count_if(part.config.layers.begin(), part.config.layers.end(),
                                      [](const LayerDesc& layer) { return has_mixer(layer); });
    result.device += fmt::format("{}{} ({} layers)", more, own.device, layers);
    result.peak_kind += more + own.peak_kind;
  }
  result.bandwidth = static_cast<double>(model.bytes_per_token()) / reading;
  result.peak = static_cast<double>(weights(model.config, true)) / computing;
}

// Measures the time to choose the experts of a token in all layers, with random logits, and the
// size of the routers.
void measure_routing(const Model& model, BenchResult& result) {
  constexpr int kTokens = 32;
  Random random(3);
  std::vector<float> logits, scratch;
  std::vector<ChosenExpert> chosen;
  ExpertSlots slots;
  double seconds = 0;
  const auto choose = [&](const Model& part, const Step& step, const step::Route& route) {
    const ExpertsDesc& experts = route.experts;
    result.router_bytes += static_cast<double>(part.matrix(step.layer, experts.router).bytes());
    chosen.resize(static_cast<size_t>(experts.chosen));
    logits.resize(static_cast<size_t>(experts.count));
    for (int token = 0; token < kTokens; ++token) {
      for (float& logit : logits)
        logit = static_cast<float>(random.normal());
      const Stopwatch watch;
      choose_experts(experts, logits.data(), part.vector(step.layer, route.bias), chosen, scratch);
      slots.group(chosen, experts.chosen, experts.count);
      seconds += watch.seconds();
    }
  };
  for (const Model& part : model.all_parts())
    for (const LayerSteps& layer : part.steps.layers)
      for (const Step& step : layer.steps)
        if (const auto* route = std::get_if<step::Route>(&step.op)) choose(part, step, *route);
  result.routing_seconds = seconds / kTokens;
}

// Returns the use of the test that needs the largest cache.
ModelUse largest_use(const Options& options) {
  ModelUse largest{.positions = 1};
  for (const Test& test : chosen_tests(options)) {
    if (test.positions() * test.sequences > largest.positions * largest.sequences)
      largest = {test.positions(), test.sequences};
  }
  return largest;
}

void bench_threads(const Options& options, int threads, std::vector<BenchResult>& results) {
  ThreadPool pool(threads);
  const std::unique_ptr<WeightSource> source = open(options, pool);
  const Stopwatch watch;
  const Model model = options.model.load_weights_only(*source, largest_use(options), pool);
  // Checks all tests before the first one is measured.
  for (const Test& test : chosen_tests(options))
    choose_positions(model.config, test.positions());
  BenchResult common;
  common.load_seconds = watch.seconds();
  common.model = source->path();
  common.type = model.type_name();
  common.bytes = model.model_bytes();
  common.params = all_weights(model.config);
  common.bpw = model.bits_per_weight();
  common.threads = pool.size();
  common.bytes_per_token = static_cast<double>(model.bytes_per_token());
  common.macs_per_token = static_cast<double>(weights(model.config, true));
  measure_machine(model, common);
  measure_routing(model, common);
  for (const Test& test : chosen_tests(options))
    results.push_back(measure(model, test, options.repetitions, common));
}

// Counts the arithmetic of a model's layers or of single matrices, without timing anything.
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
    write_result(count(options));
    return 0;
  }
  const std::vector<int> threads = options.threads.empty() ? std::vector<int>{0} : options.threads;
  if (options.formats) {
    ThreadPool pool(threads.front());
    write_result(bench_formats({options.types, options.repetitions, options.output}, pool));
    return 0;
  }
  if (options.kernels) {
    ThreadPool pool(threads.front());
    write_result(bench_kernels(
        {options.types, options.shapes, options.batches, options.repetitions, options.output},
        pool));
    return 0;
  }
  if (options.model.path.empty() == options.synthetic.empty()) {
    throw Error(ErrorCode::usage, "walsh bench",
                "what to measure? Give MODEL, --synthetic, --kernels or --formats");
  }
  const auto none = [](int64_t tokens) { return tokens == 0; };
  if (std::all_of(options.prompts.begin(), options.prompts.end(), none) &&
      std::all_of(options.generations.begin(), options.generations.end(), none))
    throw Error(ErrorCode::usage, "-p, -n", "nothing is left to measure: one has to be above 0");
  std::vector<BenchResult> results;
  for (const int count : threads)
    bench_threads(options, count, results);
  write_result(bench_text(results, options.output));
  return 0;
}

// Refuses flags that belong to another kind of benchmark.
void refuse_others(const Command& command, const Options& options) {
  const bool single = options.kernels || options.formats || options.count;
  const bool of_model = !options.model.path.empty() || !options.synthetic.empty();
  const auto refuse = [&](std::initializer_list<const char*> flags, const char* needs) {
    for (const char* flag : flags)
      if (command.given(flag))
        throw Error(ErrorCode::usage, flag, std::string("works only with ") + needs);
  };
  if (!single || (options.count && of_model))
    refuse({"--types"}, "--kernels, --formats, or --count and no model");
  if (!options.kernels && (!options.count || of_model))
    refuse({"--shapes"}, "--kernels, or --count and no model");
  if (!options.kernels) refuse({"--batches"}, "--kernels");
  if (options.synthetic.empty()) refuse({"--type", "--end-type"}, "--synthetic");
  if (!options.synthetic.empty() && options.model.recipe.given())
    throw Error(ErrorCode::usage, "--quantize", "give the type of a random model with --type");
  if (single)
    refuse({"--n-prompt", "--n-gen", "--n-depth", "--parallel"}, "the benchmark of a whole model");
}

void add_kernel_options(const FlagGroup& group, Options& options) {
  group.add("--kernels", &options.kernels, "Measure single matrix products");
  group.add("--formats", &options.formats,
            "Time encoding on one core, decoding from its second-level cache and reading from "
            "memory, for all formats or --types");
  group.add("--types", &options.types, "Formats, comma-separated", {.at_commas = true});
  group.add("--shapes", &options.shapes, "KxN, comma-separated",
            {.shown = true, .at_commas = true});
  group.add("--batches", &options.batches, "Vectors per product, comma-separated",
            {.shown = true, .range = between(1, 1 << 16), .at_commas = true});
}

}  // namespace

Action add_bench(Command& command) {
  const auto options = std::make_shared<Options>();
  options->model.add_model_to(command, false);
  const FlagGroup group = command.group("Options");
  const auto add_counts = [&](const char* names, std::vector<int64_t>* counts, const char* help,
                              const Range& range = between(0, 1 << 20)) {
    group.add(names, counts, help, {.shown = true, .range = range, .at_commas = true});
  };
  add_counts("-p,--n-prompt", &options->prompts, "Prompt lengths, comma-separated; 0: none");
  add_counts("-n,--n-gen", &options->generations, "Generated tokens, comma-separated; 0: none");
  add_counts("-d,--n-depth", &options->depths,
             "Tokens in the cache before each test, comma-separated");
  add_counts("--parallel", &options->parallel, "Sequences generated together, comma-separated",
             between(1, 256));
  group.add("-t,--threads", &options->threads, "Numbers of threads, comma-separated",
            {.range = between(1, 1024), .at_commas = true});
  group.add("-r,--repetitions", &options->repetitions, "Repetitions of each test",
            {.shown = true, .range = between(1, 1000)});
  group.add("-o,--output", &options->output, "md, csv or json",
            {.shown = true, .choices = {"md", "csv", "json"}});
  group.add("--synthetic", &options->synthetic,
            "A random model of this shape: " + synthetic_shapes(), {.value = "SHAPE"});
  group.add("--type", &options->type,
            "Type of the random model; several, comma-separated: its matrices alternate",
            {.value = "TYPE", .shown = true, .at_commas = true});
  group.add("--end-type", &options->end_type,
            "Type of its embedding and head (default: the first of --type)", {.value = "TYPE"});
  group.add("--count", &options->count,
            "Count the multiplications, additions, look-ups and rotations per token of each layer "
            "instead of measuring times; without a model, for --types and --shapes");
  add_kernel_options(command.group("Kernels"), *options);
  return [options, &command] {
    refuse_others(command, *options);
    return bench(*options);
  };
}

}  // namespace walsh::cli
