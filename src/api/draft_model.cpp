#include "api/draft_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cuda/device.h"
#include "generate/ahead_drafts.h"
#include "generate/model_drafts.h"
#include "io/printable.h"
#include "walsh/error.h"
#include "weights/open.h"

namespace walsh {
namespace {

// A text is assumed to have this many positions if the context is as long as memory allows.
constexpr int64_t kPositions = 8192;

uint64_t free_bytes(const Device& device) {
  return device.cuda ? cuda::use_device(device.index).free_bytes : 0;
}

void check_same_vocabulary(const Tokenizer& model, const Tokenizer& draft,
                           const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::usage, path, "cannot draft: its tokenizer is not the model's: " + why);
  };
  int64_t common = 0, all = 0;
  for (int32_t id = 0; id < std::max(model.vocab_size(), draft.vocab_size()); ++id) {
    const auto one = model.token(id), other = draft.token(id);
    if (one && other && *one != *other)
      refuse(fmt::format("token {} is \"{}\" instead of \"{}\"", id, printable(*other),
                         printable(*one)));
    if (one || other) ++all;
    if (one && other) ++common;
  }
  if (common < all - all / 8) refuse(fmt::format("they share {} of {} tokens", common, all));
}

// The memory of the smaller model is taken from load.device_bytes.
std::unique_ptr<DraftModel> load_draft_model(const std::string& path, const std::string& of,
                                             int64_t texts, LoadOptions& load) {
  const auto source = open_weights(path, nullptr, *load.pool);
  check_same_vocabulary(read_tokenizer(*open_weights(of, nullptr, *load.pool)),
                        read_tokenizer(*source), path);
  LoadOptions own;
  own.pool = load.pool;
  own.progress = load.progress;
  own.device = load.device;
  own.may_use_cpu = load.may_use_cpu;
  own.device_bytes = load.device_bytes;
  own.device_spare = load.device_spare;
  own.gpu_layers = load.gpu_layers == 0 ? 0 : kPlanned;
  own.cpu_experts = kPlanned;
  const int64_t wanted = load.use.max_positions;
  const int64_t positions = wanted == kFittingPositions ? kPositions : wanted;
  own.use = ModelDrafts::session_options(read_config(*source), texts, positions);
  const uint64_t before = free_bytes(load.device);
  auto draft = std::make_unique<DraftModel>(DraftModel{load_weights(*source, own)});
  draft->drafts = std::make_unique<ModelDrafts>(draft->model, texts, positions);
  const uint64_t after = free_bytes(load.device);
  if (load.device_bytes > 0)
    load.device_bytes -= std::min(load.device_bytes - 1, before - std::min(before, after));
  return draft;
}

// Refuses a model that has no layer which predicts further tokens, before its weights are read.
void require_ahead(const std::string& path, const Recipe* recipe, ThreadPool& pool) {
  const auto source = open_weights(path, recipe, pool);
  if (read_config(*source).ahead.present()) return;
  throw Error(ErrorCode::usage, path,
              "it has no layer that predicts further tokens, as \"mtp\" asks for");
}

void load_ahead(const Recipe* recipe, const LoadOptions& load, int64_t texts, int64_t most,
                LoadedModel& model) {
  if (model.model.device.cuda || !model.model.parts.empty())
    throw Error(ErrorCode::usage, model.path,
                "layers that predict further tokens work only on the CPU: use --device cpu, or "
                "another draft than mtp");
  const auto source = open_weights(model.path, recipe, *load.pool);
  const ModelConfig config = read_config(*source);
  LoadOptions own;
  own.pool = load.pool;
  own.activations = load.activations;
  own.ends = &model.model;
  own.use = model.use;
  auto draft =
      std::make_shared<DraftModel>(DraftModel{Model::load(*source, ahead_config(config), own)});
  draft->drafts = std::make_unique<AheadDrafts>(draft->model, config.ahead, texts,
                                                kv_shape(model.model, model.use).capacity, most);
  model.draft = std::move(draft);
}

}  // namespace

std::optional<int64_t> ahead_depth(const std::string& spec) {
  constexpr std::string_view kAhead = "mtp";
  if (!spec.starts_with(kAhead)) return std::nullopt;
  const std::string_view rest = std::string_view(spec).substr(kAhead.size());
  if (rest.empty()) return DraftDepth::kMost;
  if (rest.front() != ':') return std::nullopt;
  if (rest.size() == 2 && rest[1] >= '1' && rest[1] - '0' <= DraftDepth::kMost)
    return rest[1] - '0';
  throw Error(ErrorCode::usage, spec, fmt::format("expected mtp:1 to mtp:{}", DraftDepth::kMost));
}

LoadedModel load_with_drafts(const std::string& path, const Recipe* recipe, LoadOptions load,
                             const GenerationOptions* generation, const TemplateText* chat_template,
                             const std::string& spec, int64_t texts) {
  const auto ahead = ahead_depth(spec);
  std::shared_ptr<DraftModel> draft;
  if (ahead) {
    require_ahead(path, recipe, *load.pool);
  } else if (!spec.empty()) {
    draft = load_draft_model(spec, path, texts, load);
  }
  LoadedModel loaded = load_model(path, recipe, load, generation, chat_template);
  loaded.draft = std::move(draft);
  if (ahead) load_ahead(recipe, load, texts, *ahead, loaded);
  return loaded;
}

}  // namespace walsh
