#include "quantize/source/fold.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "codec/encode/encode_source.h"
#include "io/json.h"
#include "rotate/orthogonal.h"
#include "rotate/rotation.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int64_t kChunkRows = 64;    // a work item has this many rows
constexpr int64_t kStripCols = 16;    // a work item has this many columns, one cache line of a row
constexpr int64_t kRotatorUnit = 32;  // row lengths of a Rotator are multiples of it
// The seeds of these bases are made from these names, as others are from the names of activations.
constexpr std::string_view kResidualName = "residual stream", kOutputName = "outputs";
constexpr const char* kOverflow = "value that overflows when folded";

struct OwnedTensor {
  Tensor tensor;
  float* values;
};

// Allocates a tensor on the plain heap, because most tensors live until they are encoded, and huge
// pages would be torn.
OwnedTensor allocate(int64_t rows, int64_t cols) {
  const auto size = static_cast<size_t>(rows * cols);
  auto values = std::make_shared_for_overwrite<float[]>(size);
  OwnedTensor result{{}, values.get()};
  result.tensor.format = &dense_format(DType::f32);
  result.tensor.rows = rows;
  result.tensor.cols = cols;
  result.tensor.data = std::as_bytes(std::span<const float>(values.get(), size));
  result.tensor.owner = std::move(values);
  return result;
}

[[noreturn]] void refuse_width(int64_t found, const std::string& expected) {
  throw Error(ErrorCode::bad_input, "",
              "found a width of " + std::to_string(found) + ", expected " + expected);
}

// Applies a block-diagonal orthogonal matrix R in place.
class BlockTransform {
 public:
  BlockTransform() = default;  // it does nothing

  void add(const Rotation& rotation, int64_t size, int64_t repeat) {
    Part part;
    part.size = size;
    part.repeat = repeat;
    if (size % kRotatorUnit == 0) {
      part.rotator = std::make_shared<const Rotator>(rotation, size);
    } else {  // a head of 40 or 80 gets any orthogonal matrix, which costs nothing offline
      part.matrix = detail::orthogonal_matrix(rotation.seed, static_cast<int>(size));
    }
    parts_.push_back(std::move(part));
  }

  bool empty() const { return parts_.empty(); }

  // This computes x <- R x.
  void apply(float* x) const {
    std::vector<float> scratch;
    for (const Part& part : parts_) {
      for (int64_t i = 0; i < part.repeat; ++i, x += part.size) {
        if (part.rotator) {
          part.rotator->apply(x);
          continue;
        }
        scratch.resize(static_cast<size_t>(part.size));
        detail::multiply_in_place(part.matrix->forward, part.matrix->size, x, scratch.data());
      }
    }
  }

 private:
  struct Part {
    int64_t size = 0, repeat = 1;
    std::shared_ptr<const Rotator> rotator;
    std::shared_ptr<const detail::OrthogonalMatrix> matrix;
  };
  std::vector<Part> parts_;
};

// Returns the transform of vectors of `width` values. Each KV head has a matrix of its own, which
// all query heads that read it share.
BlockTransform make_transform(const ResidualPlan& plan, const Rotation& fold, Basis basis,
                              const std::string& heads, int64_t width) {
  BlockTransform result;
  Rotation rotation = fold;
  if (basis == Basis::residual) {
    if (width != plan.hidden) refuse_width(width, std::to_string(plan.hidden));
    rotation.seed = rotation_seed(fold.seed, kResidualName, 0);
    result.add(rotation, width, 1);
  } else if (basis == Basis::heads) {
    const int64_t unit = plan.kv_heads * plan.head_dim;
    if (width % unit != 0) refuse_width(width, "a multiple of " + std::to_string(unit));
    for (int64_t head = 0; head < plan.kv_heads; ++head) {
      rotation.seed =
          rotation_seed(rotation_seed(fold.seed, heads, 0), static_cast<uint32_t>(head), 0);
      result.add(rotation, plan.head_dim, width / unit);
    }
  }
  return result;
}

// Computes each row of values[rows][cols] <- R (gain * source row).
void fold_rows(const Tensor& source, std::span<const float> gains, const BlockTransform& r,
               ThreadPool& pool, float* values) {
  const int64_t rows = source.rows, cols = source.cols;
  const auto read_rows = [&](int64_t begin, int64_t end, float* out) {
    decode_rows(source, begin, end, out);
  };
  pool.for_each((rows + kChunkRows - 1) / kChunkRows, [&](int64_t chunk) {
    const int64_t begin = chunk * kChunkRows, end = std::min(rows, begin + kChunkRows);
    float* row = values + begin * cols;
    detail::read_finite_rows(read_rows, begin, end, cols, row);
    for (int64_t i = begin; i < end; ++i, row += cols) {
      for (size_t c = 0; c < gains.size(); ++c)
        row[c] *= gains[c];
      r.apply(row);
      for (int64_t c = 0; c < cols; ++c)
        if (!std::isfinite(row[c])) detail::refuse_value(kOverflow, i, c);
    }
  });
}

// Computes each column of values[rows][cols] <- R column.
void fold_columns(int64_t rows, int64_t cols, const BlockTransform& r, ThreadPool& pool,
                  float* values) {
  if (r.empty()) return;
  pool.for_each((cols + kStripCols - 1) / kStripCols, [&](int64_t strip) {
    const int64_t begin = strip * kStripCols, end = std::min(cols, begin + kStripCols);
    std::vector<float> columns(static_cast<size_t>((end - begin) * rows));
    const auto at = [&](int64_t row, int64_t col) -> float& {
      return columns[static_cast<size_t>((col - begin) * rows + row)];
    };
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = begin; col < end; ++col)
        at(row, col) = values[row * cols + col];
    for (int64_t col = begin; col < end; ++col)
      r.apply(&at(0, col));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = begin; col < end; ++col) {
        if (!std::isfinite(at(row, col))) detail::refuse_value(kOverflow, row, col);
        values[row * cols + col] = at(row, col);
      }
    }
  });
}

}  // namespace

ModelPlan folded_plan(ModelPlan plan, const std::string& where) {
  if (!plan.residual.refusal.empty()) {
    throw Error(ErrorCode::usage, where,
                "--rotate residual is not possible: " + plan.residual.refusal);
  }
  plan.head = plan.residual.head;
  std::erase(plan.ignored, plan.head);
  return plan;
}

ResidualFold::ResidualFold(const ModelPlan& plan, const Rotation& fold, WeightSource& checkpoint,
                           ThreadPool& pool)
    : plan_(plan.residual),
      gain_offset_(plan.gain_offset),
      rotation_(fold),
      checkpoint_(checkpoint),
      pool_(pool) {
  for (const FoldedTensor& folded : plan_.tensors)
    tensors_[folded.name] = &folded;
}

bool ResidualFold::contains(const std::string& name) const {
  return tensors_.contains(name) ||
         std::find(plan_.norms.begin(), plan_.norms.end(), name) != plan_.norms.end();
}

bool ResidualFold::input_rotated(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it != tensors_.end() && it->second->cols != Basis::own;
}

std::function<void(float* x)> ResidualFold::input_rotation(const std::string& name,
                                                           int64_t width) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end() || it->second->cols == Basis::own) return {};
  const FoldedTensor& folded = *it->second;
  return [r = make_transform(plan_, rotation_, folded.cols, folded.heads, width)](float* x) {
    r.apply(x);
  };
}

std::function<void(float* y)> ResidualFold::output_rotation(const std::string& name,
                                                            int64_t rows) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end() || it->second->rows == Basis::own) return {};
  const FoldedTensor& folded = *it->second;
  return [r = make_transform(plan_, rotation_, folded.rows, folded.heads, rows)](float* y) {
    r.apply(y);
  };
}

const std::string& ResidualFold::origin(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? name : it->second->source;
}

Tensor ResidualFold::load(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    Tensor source = checkpoint_.load(name);
    if (!contains(name)) return source;
    OwnedTensor ones = allocate(source.rows, source.cols);  // norms store a gain of one like this
    std::fill_n(ones.values, source.rows * source.cols, 1 - gain_offset_);
    return ones.tensor;
  }
  try {
    return fold(*it->second);
  } catch (const Error& e) {
    if (!e.where().empty()) throw;
    throw Error(e.code(), checkpoint_.path() + ": tensor " + it->second->source, e.reason());
  }
}

std::vector<float> ResidualFold::gain(const FoldedTensor& folded, int64_t cols) const {
  if (folded.gain.empty()) return {};
  const Tensor norm = checkpoint_.load(folded.gain);
  if (norm.rows != 1 || norm.cols != cols) {
    throw Error(ErrorCode::bad_input, checkpoint_.path() + ": tensor " + folded.gain,
                "found " + std::to_string(norm.rows * norm.cols) + " values, expected " +
                    std::to_string(cols));
  }
  std::vector<float> values(static_cast<size_t>(cols));
  decode_rows(norm, 0, 1, values.data());
  for (float& value : values)
    value += gain_offset_;
  return values;
}

Tensor ResidualFold::fold(const FoldedTensor& folded) const {
  const Tensor source = checkpoint_.load(folded.source);
  const auto transform = [&](Basis basis, int64_t width) {
    return make_transform(plan_, rotation_, basis, folded.heads, width);
  };
  const BlockTransform of_row = transform(folded.cols, source.cols);
  const BlockTransform of_column = transform(folded.rows, source.rows);
  const OwnedTensor result = allocate(source.rows, source.cols);
  fold_rows(source, gain(folded, source.cols), of_row, pool_, result.values);
  fold_columns(source.rows, source.cols, of_column, pool_, result.values);
  return result.tensor;
}

Tensor rotate_outputs(const Tensor& matrix, const Rotation& rotation, ThreadPool& pool) {
  BlockTransform of_column;
  of_column.add(rotation, matrix.rows, 1);
  const OwnedTensor result = allocate(matrix.rows, matrix.cols);
  fold_rows(matrix, {}, {}, pool, result.values);
  fold_columns(matrix.rows, matrix.cols, of_column, pool, result.values);
  return result.tensor;
}

Rotation rotation_of_outputs(const Rotation& fold, std::string_view activation) {
  Rotation rotation = fold;
  rotation.seed = rotation_seed(rotation_seed(fold.seed, kOutputName, 0), activation, 0);
  return rotation;
}

}  // namespace walsh
