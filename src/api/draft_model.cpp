#include "api/draft_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cuda/device.h"
#include "io/printable.h"
#include "walsh/error.h"
#include "weights/open.h"

namespace walsh {
namespace {

// Guessed positions of a text where the context is as long as memory allows.
constexpr int64_t kPositions = 8192;

uint64_t free_bytes(const Device& device) {
  return device.cuda ? cuda::use_device(device.index).free_bytes : 0;
}

}  // namespace

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
  auto draft = std::make_unique<DraftModel>(load_weights(*source, own), texts, positions);
  const uint64_t after = free_bytes(load.device);
  if (load.device_bytes > 0)
    load.device_bytes -= std::min(load.device_bytes - 1, before - std::min(before, after));
  return draft;
}

}  // namespace walsh
