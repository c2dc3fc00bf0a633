#include "calibrate/gpu_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/checked.h"
#include "calibrate/text_windows.h"
#include "model/cuda/cuda_model.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// This much memory is left to the encoders, which may use the same GPU.
constexpr uint64_t kEncoders = uint64_t{2} << 30;

// Returns the model with nothing but the embedding.
ModelConfig embedding_of(const ModelConfig& config) {
  ModelConfig part = config;
  part.layers.assign(config.layers.size(), {});
  part.head = {};
  part.head_input = {};
  part.tied_head = false;
  part.ahead = {};
  return part;
}

// Turns moments X^T X into those of rotated rows, which are R X^T X R^T.
void rotate_moments(InputMoments& moments, const std::function<void(float*)>& rotate,
                    ThreadPool& pool) {
  const int64_t width = moments.width;
  float* const sums = moments.sums.data();
  const auto mirror = [&] {
    pool.for_each(width, [&](int64_t i) {
      for (int64_t j = 0; j < i; ++j)
        sums[i * width + j] = sums[j * width + i];
    });
  };
  const auto rotate_rows = [&] {
    pool.for_each(width, [&](int64_t i) { rotate(sums + i * width); });
  };
  mirror();
  rotate_rows();
  for (int64_t i = 0; i < width; ++i)
    for (int64_t j = 0; j < i; ++j)
      std::swap(sums[i * width + j], sums[j * width + i]);
  rotate_rows();
}

}  // namespace

GpuMeter::GpuMeter(MeasuredCheckpoint& checkpoint, std::vector<std::vector<int32_t>> windows,
                   const Device& device, std::function<void()> check)
    : checkpoint_(checkpoint),
      windows_(std::move(windows)),
      device_(device),
      check_(std::move(check)) {
  check_windows(checkpoint_.config(), windows_);
  uint64_t tokens = 0;
  for (const auto& window : windows_)
    tokens += window.size();
  session_ = session_for(windows_, device_);
  refuse_layers();
  const auto hidden = static_cast<uint64_t>(checkpoint_.config().hidden);
  stream_ = AlignedArray<float>(narrow<size_t>(checked_mul(tokens, hidden, "text"), "text"));
  restart();
}

void GpuMeter::refuse_layers() {
  const ModelConfig& config = checkpoint_.config();
  const auto refuse = [&](const std::string& reason) {
    throw Error(ErrorCode::usage, device_.name(), reason);
  };
  if (const std::string reason = why_no_cuda_meter(); !reason.empty()) refuse(reason);
  if (config.layer_embedding.present()) refuse("embeddings of layers are not measured there");
  for (const LayerDesc& layer : config.layers)
    if (layer.attention.cache_of >= 0) refuse("layers that share keys and values are not there");
  for (int64_t layer = 0; layer < checkpoint_.layers(); ++layer) {
    const ModelConfig alone = part(layer);
    LoadOptions beside = options(alone);
    beside.device_spare += kEncoders;
    Model::check_part(checkpoint_.source(), alone, beside);
  }
}

LoadOptions GpuMeter::options(const ModelConfig& part) const {
  LoadOptions options;
  options.pool = &checkpoint_.pool();
  options.device = device_;
  options.use = session_;
  options.batch_rows = kGpuBatchRows;
  options.device_spare = cuda_meter_bytes(part, kGpuBatchRows);
  return options;
}

// Returns a model of one layer. The head's part has the last layer, because a part needs a layer.
ModelConfig GpuMeter::part(int64_t layer) const {
  const ModelConfig& whole = checkpoint_.config();
  const bool is_head = layer == checkpoint_.layers();
  const auto index = static_cast<size_t>(is_head ? layer - 1 : layer);
  ModelConfig part = embedding_of(whole);
  part.embedding.clear();
  part.layers[index] = whole.layers[index];
  // The last layer takes the mean from the rows that the head's norm reads (LayerNorm).
  part.head_input.norm.centered = whole.head_input.norm.centered;
  if (!is_head) return part;
  part.head = whole.head;
  part.head_input = whole.head_input;
  return part;
}

// The CPU computes the embeddings with which the GPU's layers begin.
void GpuMeter::restart() {
  LoadOptions options;
  options.pool = &checkpoint_.pool();
  const ModelConfig part = embedding_of(checkpoint_.config());
  const Model model = Model::load_part(checkpoint_.source(), part, options);
  std::vector<int32_t> tokens;
  for (const auto& window : windows_)
    tokens.insert(tokens.end(), window.begin(), window.end());
  checkpoint_.pool().for_each(static_cast<int64_t>(tokens.size()), [&](int64_t i) {
    std::vector<float> scratch(static_cast<size_t>(model.embedding.scratch()));
    model.embedding.look_up(tokens[static_cast<size_t>(i)], part.embedding_scale,
                            stream_.data() + i * part.hidden, scratch.data());
  });
}

std::vector<MeasuredInput> GpuMeter::run(int64_t layer) {
  const bool is_head = layer == checkpoint_.layers();
  const ModelConfig alone = part(layer);
  const Model model = Model::load_part(checkpoint_.source(), alone, options(alone));
  KvPages pages(kv_shape(model, session_));
  for (int64_t i = 0; i < session_.sequences; ++i) {
    const Growth window{pages.open(), session_.max_positions};
    pages.reserve({&window, 1});
  }
  const auto executor = make_cuda_executor(model, pages, 0);
  std::vector<std::function<void(float*)>> rotations;
  std::set<const Input*> without_gain;
  const auto input_of = [&](size_t i) -> const Input& {
    return model.input(is_head ? -1 : static_cast<int>(layer), static_cast<int>(i));
  };
  for (size_t i = 0; i < checkpoint_.inputs(layer); ++i) {
    rotations.push_back(checkpoint_.rotation(layer, i));
    if (rotations.back()) without_gain.insert(&input_of(i));
  }
  executor->meter(without_gain);
  for_batches(*executor, [&](int64_t rows) {
    if (is_head) {
      executor->meter_head(rows);
    } else {
      executor->run_layers(layer, layer + 1);
    }
  });
  std::vector<MeasuredInput> result;
  for (size_t i = 0; i < rotations.size(); ++i) {
    MeasuredInput& measured =
        result.emplace_back(MeasuredInput{read(*executor, input_of(i), -1, rotations[i])});
    const int64_t experts = executor->metered_experts(input_of(i));
    for (int64_t e = 0; e < experts; ++e)
      measured.experts.emplace_back(
          read(*executor, input_of(i), static_cast<int>(e), rotations[i]));
  }
  return result;
}

InputMoments GpuMeter::read(MeteringExecutor& executor, const Input& input, int expert,
                            const std::function<void(float*)>& rotate) const {
  InputMoments moments = executor.metered(input, expert);
  if (rotate && moments.tokens > 0) rotate_moments(moments, rotate, checkpoint_.pool());
  return moments;
}

void GpuMeter::for_batches(MeteringExecutor& executor,
                           const std::function<void(int64_t rows)>& body) {
  float* next = stream_.data();
  walsh::for_batches(windows_, session_.sequences, executor.max_rows(), [&](const Batch& batch) {
    const auto rows = static_cast<int64_t>(batch.tokens.size());
    executor.run_parts(batch, [&] {
      executor.write_rows(Rows::stream, 0, rows, next);
      body(rows);
      executor.read_rows(Rows::stream, 0, rows, next);
    });
    next += rows * checkpoint_.config().hidden;
    if (check_) check_();
  });
}

}  // namespace walsh
