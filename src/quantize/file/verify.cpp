#include "quantize/file/verify.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "quantize/pipeline/compressor.h"
#include "quantize/source/balance.h"
#include "quantize/source/fold.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int64_t kChunkRows = 64;

std::vector<float> read_vector(WeightSource& source, const std::string& name) {
  const Tensor t = source.load(name);
  std::vector<float> values(static_cast<size_t>(t.rows * t.cols));
  decode_rows(t, 0, t.rows, values.data());
  return values;
}

// Returns the norm in front of a matrix, or an empty text if there is none.
std::string feeding_norm(const ModelPlan& plan, const std::string& tensor) {
  if (tensor == plan.head) return plan.final_norm;
  for (const Site& site : plan.sites) {
    for (const auto* names : {&site.matrices, &site.plain})
      if (std::find(names->begin(), names->end(), tensor) != names->end()) return site.norm;
  }
  return "";
}

// Returns the original with its rows scaled as balancing scales a feeder.
Tensor scaled_original(Tensor original, const WalshFile& file, const ModelPlan& plan,
                       const std::string& tensor, ThreadPool& pool) {
  for (const Site& site : plan.sites) {
    if (site.feeder.matrix != tensor || site.matrices.empty()) continue;
    const auto scales = file.column_scales(site.matrices.front());
    if (scales.empty()) continue;
    if (static_cast<int64_t>(scales.size()) != site.width) {
      throw Error(ErrorCode::bad_input, file.path() + ": " + keys::kScales,
                  "its size differs from the checkpoint's");
    }
    return scale_rows(original, feeder_factors(site.feeder, scales, original.rows), pool);
  }
  return original;
}

std::vector<float> scales_of(WalshFile& file, WeightSource& checkpoint, const std::string& norm,
                             float gain_offset, const std::string& tensor) {
  if (norm.empty()) {
    const auto scales = file.column_scales(tensor);
    return {scales.begin(), scales.end()};
  }
  std::vector<float> scales = read_vector(checkpoint, norm);
  const std::vector<float> folded = read_vector(file, norm);
  if (folded.size() != scales.size()) {
    throw Error(ErrorCode::bad_input, file.path() + ": tensor " + norm,
                "its size differs from the checkpoint's");
  }
  for (size_t c = 0; c < scales.size(); ++c) {
    scales[c] =
        scales[c] == folded[c] ? 1.0f : (gain_offset + scales[c]) / (gain_offset + folded[c]);
  }
  return scales;
}

}  // namespace

void check_measurable(const WalshFile& file) {
  if (!file.fold() || file.version() >= kCheckedVersion) return;
  throw Error(ErrorCode::bad_input, file.path(),
              "cannot be measured against its source: it is of file format version " +
                  std::to_string(file.version()) +
                  " and folded (--rotate residual), with rotations seeded by the number of each "
                  "activation; this walsh seeds them by its name. It runs as it is");
}

double measure_nmse(WalshFile& file, WeightSource& checkpoint, const ModelPlan& plan,
                    const std::string& tensor, ThreadPool& pool) {
  check_measurable(file);
  const Tensor stored = file.load(tensor);
  std::optional<ResidualFold> fold;
  if (file.fold()) fold.emplace(plan, *file.fold(), checkpoint, pool);
  Tensor original = fold ? fold->load(tensor) : checkpoint.load(tensor);
  if (stored.rows != original.rows || stored.cols != original.cols) {
    throw Error(ErrorCode::bad_input, file.path() + ": tensor " + tensor,
                "its shape differs from the checkpoint's");
  }
  original = scaled_original(std::move(original), file, plan, tensor, pool);
  const Rotation outputs = file.form_of(tensor).output;
  if (outputs.kind != RotationKind::none) original = rotate_outputs(original, outputs, pool);
  // The norms of the residual stream have no gain left; those of latents are balanced as usual.
  std::string scaled_norm = feeding_norm(plan, tensor);
  if (fold && fold->contains(scaled_norm)) scaled_norm.clear();
  const std::vector<float> scales =
      scales_of(file, checkpoint, scaled_norm, plan.gain_offset, tensor);
  const int64_t chunks = (stored.rows + kChunkRows - 1) / kChunkRows;
  std::vector<double> errors(static_cast<size_t>(chunks)), norms(static_cast<size_t>(chunks));
  pool.for_each(chunks, [&](int64_t chunk) {
    const int64_t begin = chunk * kChunkRows;
    const int64_t end = std::min(stored.rows, begin + kChunkRows);
    std::vector<float> a(static_cast<size_t>((end - begin) * stored.cols)), b(a.size());
    read_scaled_rows(original, scales, begin, end, a.data());
    decode_rows(stored, begin, end, b.data());
    double error = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double d = double{a[i]} - double{b[i]};
      error += d * d;
      norm += double{a[i]} * double{a[i]};
    }
    errors[static_cast<size_t>(chunk)] = error;
    norms[static_cast<size_t>(chunk)] = norm;
  });
  double error = 0, norm = 0;
  for (size_t i = 0; i < errors.size(); ++i) {
    error += errors[i];
    norm += norms[i];
  }
  return norm > 0 ? error / norm : 0.0;
}

}  // namespace walsh
