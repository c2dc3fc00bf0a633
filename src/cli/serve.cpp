// `walsh serve MODEL...` runs an HTTP server with OpenAI's API for many users of one model or
// several.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/prefix_options.h"
#include "cli/sampling_options.h"
#include "cli/serve_models.h"
#include "cli/template_options.h"
#include "cli/terminal.h"
#include "io/error_output.h"
#include "io/mapped_file.h"
#include "io/printable.h"
#include "model/cuda/cuda_model.h"
#include "model/part_executor.h"
#include "model/positions.h"
#include "schedule/memory_plan.h"
#include "serve/household.h"
#include "serve/http.h"
#include "serve/served_model.h"
#include "walsh/error.h"
#include "weights/open.h"

namespace walsh::cli {
namespace {

constexpr uint64_t kMaxKeyBytes = 1 << 20;

struct Options {
  ServedModels models;
  ModelOptions model;  // its path is set for each of them
  TemplateOptions chat;
  SchedulerOptions scheduler;
  HttpOptions http;
  ServiceOptions service;
  std::string key_file;
  std::string max_body;  // If empty, it is what the models need.
  PrefixOptions prefixes;
  double drain_seconds = 30, timeout_seconds = 30;
  // A step beside which prompts are read should take this time: twenty tokens per second are faster
  // than anybody reads.
  double step_milliseconds = 50;
  std::string log_format = "text";
  uint32_t port = HttpOptions().port;
  bool insecure = false;
  std::string pooling;  // of embeddings; empty: the model's
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Reads one key per line; empty lines and comments (#) are skipped.
std::vector<std::string> keys_of(const std::string& path) {
  std::vector<std::string> keys;
  std::string text = read_text_input(path, kMaxKeyBytes) + "\n";
  for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
    std::string line = text.substr(0, end);
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())))
      line.pop_back();
    if (!line.empty() && line.front() != '#') keys.push_back(std::move(line));
  }
  if (keys.empty()) throw Error(ErrorCode::usage, path, "has no key");
  return keys;
}

ServiceOptions service_options(const Options& options) {
  ServiceOptions service = options.service;
  service.log = options.log_format == "json"   ? LogFormat::json
                : options.log_format == "text" ? LogFormat::text
                                               : LogFormat::off;
  if (!options.key_file.empty()) {
    const auto more = keys_of(options.key_file);
    service.api_keys.insert(service.api_keys.end(), more.begin(), more.end());
  }
  // An empty key, for example from an unset variable, would admit requests without a key.
  for (const std::string& key : service.api_keys)
    if (key.empty()) throw Error(ErrorCode::usage, "--api-key", "a key is empty");
  if (service.api_keys.empty() && !is_loopback(options.http.host) && !options.insecure) {
    throw Error(ErrorCode::usage, "--host",
                fmt::format("everybody who reaches {} could use the model: give --api-key, or "
                            "--insecure if that is meant",
                            options.http.host));
  }
  return service;
}

// Returns the address as clients write it.
std::string address(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

// Stops the server when it ends, also if something else cannot be started.
class Running {
 public:
  explicit Running(HttpServer& server)
      : server_(server), connections_([&server] { server.run(); }) {}
  ~Running() {
    server_.shut_down(drain_seconds);
    connections_.join();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  double drain_seconds = 0;

 private:
  HttpServer& server_;
  std::thread connections_;
};

// Loads and unloads the models of a household as long as this exists.
class KeptModels {
 public:
  explicit KeptModels(Household& household)
      : household_(household), keeper_([&household] { household.run(); }) {}
  ~KeptModels() {
    household_.drain();
    keeper_.join();
  }
  KeptModels(const KeptModels&) = delete;
  KeptModels& operator=(const KeptModels&) = delete;

 private:
  Household& household_;
  std::thread keeper_;
};

// Returns the largest body that was asked for.
uint64_t body_bytes(const std::string& size) {
  constexpr uint64_t kLeast = uint64_t{64} << 10, kMost = uint64_t{1} << 30;
  const uint64_t bytes = parse_bytes(size, "--max-body");
  if (bytes < kLeast || bytes > kMost)
    throw Error(ErrorCode::usage, "--max-body", size + " is not between 64KiB and 1GiB");
  return bytes;
}

// Allows a connection for every text that may be requested, and some for clients that only query.
// A body has room for the largest image in base64 where there may be images.
HttpOptions http_options(const Options& options, bool takes_images) {
  constexpr int64_t kLeast = 1024, kOthers = 256;
  constexpr uint64_t kWithImages = uint64_t{48} << 20;
  HttpOptions http = options.http;
  http.port = static_cast<uint16_t>(options.port);
  http.body_seconds = http.write_seconds = options.timeout_seconds;
  if (!options.max_body.empty()) {
    http.body_bytes = body_bytes(options.max_body);
  } else if (takes_images) {
    http.body_bytes = kWithImages;
  }
  http.held_bytes = std::max(http.held_bytes, 2 * http.body_bytes);
  if (http.connections == 0)
    http.connections =
        std::max(kLeast, options.scheduler.running + options.scheduler.waiting + kOthers);
  // There may be as many connections that are not admitted yet, and the model's files are open.
  const auto wanted = static_cast<rlim_t>(2 * http.connections + kOthers);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < wanted) {
    files.rlim_cur = std::min(wanted, files.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  return http;
}

// Serves requests by `front`, a Service or a Household, until the process is asked to end.
// `what` says what is served, `takes_images` whether a model may take images.
template <class Front>
int listen(const Options& options, Front& front, const std::string& what, bool takes_images) {
  HttpServer server(
      http_options(options, takes_images),
      [&](HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
        front.handle(request, reply);
      },
      [&](int status, const std::string& message, const HttpRequest& request) {
        return front.error_body(status, message, request);
      },
      turn_of, [&](HttpRequest& request) { return front.admit(request); });
  Running running(server);
  message("listening at {}/v1: {}\n", address(options.http.host, server.port()), what);
  while (!InterruptGuard::requested())
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  // The end must not wait for a pipe that nobody reads.
  write_error_output(
      fmt::format("shutting down: running answers have at most {} s\n", options.drain_seconds),
      std::chrono::milliseconds(200));
  front.drain();
  running.drain_seconds = options.drain_seconds;
  return 0;
}

ModelUse model_use(const Options& options, int64_t positions) {
  return {.positions = positions,
          .sequences = options.scheduler.running + options.scheduler.kept,
          .texts = options.scheduler.running};
}

// Returns how a model is loaded and served. `positions` are those of its texts, and `folder` is its
// name if it is one of several models.
ServedModelOptions model_options(const Options& options, const ModelOptions& model,
                                 const ServiceOptions& service, int64_t positions,
                                 const std::string& folder = "") {
  ServedModelOptions served;
  served.threads = options.model.machine.threads;
  served.open_store = options.prefixes.opener(positions, folder);
  served.scheduler = options.scheduler;
  served.scheduler.positions = positions;
  served.scheduler.lookup = options.model.looks_up();
  served.service = service;
  served.template_variables = options.chat.variables();
  const ModelUse use = model_use(options, positions);
  served.load = [&options, model, use, sampling = service.sampling](ThreadPool& pool) {
    const std::optional<TemplateText> given = options.chat.text();
    LoadedModel loaded = model.load(use, pool, given ? &*given : nullptr, &sampling);
    if (!options.pooling.empty()) loaded.embedding.pooling = parse_pooling(options.pooling);
    return loaded;
  };
  return served;
}

int serve_one(const Options& options, ServiceOptions service) {
  options.models.note_for_single();
  ModelOptions model = options.model;
  model.path = options.models.paths.front();
  if (service.model_name.empty()) service.model_name = model_name(model.path);
  ServedModel served(model_options(options, model, service, options.scheduler.positions));
  return listen(options, served.service(),
                fmt::format("{}, up to {} texts at a time, each of up to {} tokens",
                            one_line(service.model_name), options.scheduler.running,
                            served.scheduler().positions()),
                served.model().images->present());
}

// Returns how many positions a model has of those that are wanted for all.
int64_t positions_of(const ModelConfig& config, int64_t wanted) {
  return std::min(wanted, most_positions(config));
}

// Returns the memory that a model takes, of the GPU if it is served there. `most` is what all
// models may have.
uint64_t planned_bytes_of(const Options& options, const ModelPlace& place, uint64_t most) {
  ThreadPool pool(1);
  ModelOptions model = options.model;
  model.quiet = true;
  model.path = place.path;
  const auto source = model.open(pool);
  const ModelConfig config = read_config(*source);
  SchedulerOptions scheduler = options.scheduler;
  scheduler.positions = positions_of(config, scheduler.positions);
  scheduler.lookup = options.model.speculation != "none";
  if (model.chosen_device().cuda)
    return cuda_model_bytes(*source, config, model.loading(model_use(options, scheduler.positions)),
                            most);
  return planned_bytes(*source, config, model.cache(), scheduler);
}

// Lists the names of models, but no more than a line has room for.
std::string names_of(const std::vector<ModelPlace>& places) {
  constexpr size_t kShown = 20;
  std::string names;
  for (size_t i = 0; i < std::min(kShown, places.size()); ++i)
    names += (i == 0 ? "" : ", ") + places[i].name;
  return one_line(names) + (places.size() > kShown ? ", ..." : "");
}

int serve_several(const Options& options, const ServiceOptions& service) {
  refuse_for_several(options.model, service.model_name);
  const std::vector<ModelPlace> places = options.models.places();
  PoolOptions pool = options.models.pool_options(options.model.chosen_device());
  pool.waiting = static_cast<size_t>(options.scheduler.running + options.scheduler.waiting);
  pool.plan = [&, most = pool.most_bytes](const ModelPlace& place) {
    return planned_bytes_of(options, place, most);
  };
  const auto load = [&, tell = pool.tell](const ModelPlace& place, std::shared_ptr<Door> door,
                                          std::shared_ptr<Metrics> metrics) {
    ModelOptions model = options.model;
    model.quiet = true;
    model.path = place.path;
    ServiceOptions named = service;
    named.model_name = place.name;
    const int64_t positions =
        positions_of(read_config(*open_stored(place.path)), options.scheduler.positions);
    auto served =
        std::make_unique<ServedModel>(model_options(options, model, named, positions, place.name),
                                      std::move(door), std::move(metrics));
    for (const std::string& note : served->model().notes)
      tell("note: " + note);
    return served;
  };
  Household household(places, pool, load, service);
  const KeptModels kept(household);
  return listen(
      options, household,
      fmt::format("{} models, loaded when they are asked for: {}", places.size(), names_of(places)),
      true);
}

int serve(Options options) {
  options.scheduler.step_seconds = options.step_milliseconds / 1e3;
  options.model.machine.apply();
  const InterruptGuard interrupt;
  if (!options.max_body.empty())
    body_bytes(options.max_body);  // It refuses bad sizes before any work.
  const ServiceOptions service = service_options(options);
  options.prefixes.prepare();
  return options.models.single() ? serve_one(options, service) : serve_several(options, service);
}

void add_server_options(const FlagGroup& group, Options& options) {
  group.add("--host", &options.http.host, "Address to listen at", {.shown = true});
  group.add("--port", &options.port, "Port; 0: any free one",
            {.shown = true, .range = between(0, 65535)});
  group.add("--api-key", &options.service.api_keys,
            "Key that clients must send; several comma-separated", {.at_commas = true});
  group.add("--api-key-file", &options.key_file, "File with a key per line", {.value = "FILE"});
  group.add("--alias", &options.service.model_name,
            "The name of a single model (default: that of the file)");
  group.add("--allowed-hosts", &options.service.hosts,
            "Host names that requests may use besides localhost and IP addresses, comma-separated",
            {.at_commas = true});
  group.add("--cors-origins", &options.service.origins,
            "Origins whose pages may send requests, comma-separated; *: all (default: none)",
            {.at_commas = true});
  group.add("--slots,!--no-slots", &options.service.slots,
            "Show at /slots what is generated (default)");
  group.add("--reasoning-budget", &options.service.reasoning_budget,
            "Tokens that a model may think before it answers; -1: any number",
            {.shown = true, .range = between(-1, 1 << 30)});
  group.add("--reranker", &options.service.reranker,
            "Rank documents (/v1/rerank) by yes and no, as Qwen3-Reranker does; without it, if the "
            "model's name has 'rerank'");
  group.add("--drain", &options.drain_seconds, "Seconds that running answers have at shutdown",
            {.shown = true, .range = between(0.0, 3600.0)});
  group.add("--threads-http", &options.http.threads,
            "Threads that read requests and render templates",
            {.shown = true, .range = between(1, 64)});
  group.add("--timeout", &options.timeout_seconds,
            "Seconds for a request's body, and for a client that does not read [30]",
            {.range = between(0.1, 86400.0)});
  group.add("--max-body", &options.max_body,
            "Largest body of a request, such as 16MiB [8MiB; 48MiB where models take images]",
            {.value = "SIZE"});
  group.add("--connections", &options.http.connections,
            "Connections of admitted clients; 0: enough for --parallel and --queue [0]",
            {.range = between(0, 1 << 20)});
  group.add("--log-format", &options.log_format,
            "Log a line per request on standard error: text, json or off [text]",
            {.choices = {"text", "json", "off"}});
  group.add("--insecure", &options.insecure, "Listen at any address without a key");
}

void add_scheduler_options(const FlagGroup& group, Options& options) {
  SchedulerOptions& scheduler = options.scheduler;
  const auto add = [&](const char* names, int64_t* value, const char* text, int64_t least,
                       int64_t most) {
    group.add(names, value, text, {.shown = true, .range = between(least, most)});
  };
  add("-c,--ctx,--ctx-size", &scheduler.positions,
      "Context of each text in tokens; 0: the model's, at most 4096", 0, int64_t{1} << 40);
  add("-P,--parallel,--np", &scheduler.running, "Texts generated together; also -np", 1, kCpuRows);
  add("--queue", &scheduler.waiting, "Requests that may wait; further ones are answered 429", 0,
      1 << 20);
  add("-b,--batch-size", &scheduler.step_tokens, "Most tokens per step", 1, 1 << 20);
  group.add("--step-time", &options.step_milliseconds,
            "Milliseconds that a step which continues texts may take: prompts beside them are read "
            "in pieces that fit; 0: in pieces of --batch-size [50]",
            {.range = between(0.0, 60000.0)});
  add("--kept-texts", &scheduler.kept, "Ended texts kept in the prefix cache", 0, 512);
  add("--cache-positions", &scheduler.cache_positions,
      "Cache for all texts together, in tokens; 0: for --parallel texts", 0, int64_t{1} << 40);
  group.add("--prefix-cache,!--no-prefix-cache", &scheduler.share_prefixes,
            "Share cached prefixes between texts (default)");
}

}  // namespace

Action add_serve(Command& command) {
  const auto options = std::make_shared<Options>();
  options->http.connections = 0;
  options->models.add_to(command);
  options->model.add_loading_to(command);
  options->chat.add_to(command);
  add_server_options(command.group("Server"), *options);
  const FlagGroup batching = command.group("Batching");
  add_scheduler_options(batching, *options);
  options->prefixes.add_to(batching);
  add_shift_options(batching, options->service);
  options->model.add_speculation_to(batching);
  add_pooling(command, options->pooling);
  add_sampling_options(command, options->service.sampling);
  command.variables = "WALSH_ARG_";
  command.footer = "Every long flag has a variable: --api-key is WALSH_ARG_API_KEY; flags win.";
  return [options] { return serve(*options); };
}

}  // namespace walsh::cli
