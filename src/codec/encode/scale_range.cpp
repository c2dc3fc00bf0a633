#include "codec/encode/scale_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/checked.h"
#include "base/half.h"
#include "codec/codec.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int kUnit = 32;  // Every scale belongs to whole units of this many columns.
constexpr int64_t kRowsPerItem = 64;
constexpr double kMostLost = 0.003, kMostOfRest = 0.15, kMostLostDense = 1e-3;
// A tensor whose sum of squares is below this needs no scale near 65504.
constexpr double kLeastSaturatedNorm = 0x1p30;

[[noreturn]] void refuse(std::string reason) {
  throw Error(ErrorCode::bad_input, "", std::move(reason));
}

uint16_t half_at(std::span<const std::byte> halves, int64_t index) {
  uint16_t h;
  std::memcpy(&h, halves.data() + 2 * index, 2);
  return h;
}

float magnitude(uint16_t half) {
  return f16_to_f32(half & 0x7fff);
}

// Returns the expected relative squared error of a value that was rounded to `half`: 1 if that is
// zero, the error of a uniform distribution over the last place for a subnormal number, and about 0
// otherwise.
double rounding_loss(uint16_t half) {
  const int mantissa = half & 0x3ff;
  if ((half & 0x7c00) != 0) return 0;
  return mantissa == 0 ? 1.0 : 1.0 / (12.0 * mantissa * mantissa);
}

// Examines the scales of the last pass, which has to correct what the passes before it leave over.
class LastScales {
 public:
  explicit LastScales(const Tensor& tensor)
      : tensor_(tensor),
        pass_(tensor.format->passes - 1),
        padded_(padded_cols(*tensor.format, tensor.cols)) {}

  int pass() const { return pass_; }
  int64_t padded() const { return padded_; }

  // Computes which share of its squares each unit of a row loses, losses[padded / kUnit]. Returns
  // false if no unit loses any.
  bool losses(int64_t row, std::vector<double>& losses) const {
    bool any = false;
    for (int64_t u = 0; u < padded_ / kUnit; ++u) {
      const double loss = std::min(1.0, loss_at(row, u * kUnit));
      losses[static_cast<size_t>(u)] = loss;
      any = any || loss > 0;
    }
    return any;
  }

 private:
  double loss_at(int64_t row, int64_t col) const {
    uint16_t halves[2];
    const int count = codec_of(*tensor_.format).scales(tensor_, pass_, row, col, halves);
    double loss = 0;
    for (int i = 0; i < count; ++i)
      loss += rounding_loss(halves[i]);
    return loss;
  }

  const Tensor& tensor_;
  int pass_;
  int64_t padded_;
};

// Adds up the squares that coarse scales of the tensor lose.
class LostSquares {
 public:
  LostSquares(const Tensor& tensor, ReadRows read_rows)
      : tensor_(tensor), scales_(tensor), read_rows_(read_rows) {
    for (int pass = 0; pass < tensor.format->passes; ++pass)
      rotators_.emplace_back(tensor.rotation[pass], scales_.padded());
  }

  double total(ThreadPool& pool) const {
    const int64_t items = ceil_div(tensor_.rows, kRowsPerItem);
    std::vector<double> parts(static_cast<size_t>(items));
    pool.for_each(items, [&](int64_t item) {
      const int64_t begin = item * kRowsPerItem;
      const int64_t end = std::min(tensor_.rows, begin + kRowsPerItem);
      std::vector<double> losses(static_cast<size_t>(scales_.padded() / kUnit));
      for (int64_t row = begin; row < end; ++row) {
        if (scales_.losses(row, losses)) parts[static_cast<size_t>(item)] += of_row(row, losses);
      }
    });
    return std::accumulate(parts.begin(), parts.end(), 0.0);
  }

 private:
  double of_row(int64_t row, const std::vector<double>& losses) const {
    const auto padded = static_cast<size_t>(scales_.padded());
    std::vector<float> x(padded), decoded(padded);
    read_rows_(row, row + 1, x.data());
    rotators_[0].apply(x.data());
    for (int pass = 0; pass < scales_.pass(); ++pass) {
      decode_pass_row(tensor_, pass, row, decoded.data());
      for (size_t i = 0; i < padded; ++i)
        x[i] -= decoded[i];
      rotators_[static_cast<size_t>(pass)].invert(x.data());
      rotators_[static_cast<size_t>(pass + 1)].apply(x.data());
    }
    double lost = 0;
    for (size_t i = 0; i < padded; ++i)
      lost += losses[i / kUnit] * static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return lost;
  }

  const Tensor& tensor_;
  LastScales scales_;
  ReadRows read_rows_;
  std::vector<Rotator> rotators_;
};

// Returns the first row in which a value of the array is the largest fp16; -1 if there is none. A
// sub-scale counts as its product with the scale of its group.
int64_t saturated_row(const Tensor& tensor, int pass, const PassField& field) {
  const std::span<const std::byte> halves = tensor.pass[pass].*field.array;
  const auto per_row = static_cast<int64_t>(field.row_bytes / 2);
  const ScalarCode& code = tensor.format->code[pass];
  const bool sub = field.array == &PassArrays::sub_scales;
  const int64_t per_group = sub ? code.group / code.sub_group : 1;
  const int64_t groups = (per_row + per_group - 1) / per_group;
  for (int64_t row = 0; row < field.rows; ++row) {
    for (int64_t i = 0; i < per_row; ++i) {
      float value = magnitude(half_at(halves, row * per_row + i));
      if (sub) {
        const int64_t group = row * groups + i / per_group;
        value = std::max(value, value * magnitude(half_at(tensor.pass[pass].scales, group)));
      }
      if (!(value < kLargestHalf)) return row;
    }
  }
  return -1;
}

void refuse_saturated(const Tensor& tensor) {
  const Format& format = *tensor.format;
  for (int pass = 0; pass < format.passes; ++pass) {
    for (const PassField& field : pass_fields(format, pass, tensor.rows, tensor.cols)) {
      if (field.array == &PassArrays::codes || field.array == &PassArrays::codebook) continue;
      const int64_t row = saturated_row(tensor, pass, field);
      if (row < 0) continue;
      refuse(
          fmt::format("weights too large for {}: row {} needs a scale beyond {}, the largest of "
                      "fp16",
                      format.name, row, kLargestHalf));
    }
  }
}

}  // namespace

bool may_have_lost_scales(const Format& format, double squared_error, double squared_norm) {
  if (!(squared_norm > 0)) return false;
  if (format.dense) return squared_error > kMostLostDense * squared_norm;
  const double unremarkable = (1 + kMostOfRest / 2) * format.bound * squared_norm;
  return squared_error > unremarkable || squared_norm > kLeastSaturatedNorm;
}

void refuse_lost_scales(const Tensor& tensor, ReadRows read_rows, ThreadPool& pool,
                        double squared_error, double squared_norm) {
  const Format& format = *tensor.format;
  if (!may_have_lost_scales(format, squared_error, squared_norm)) return;
  double lost = squared_error;
  if (!format.dense) {
    refuse_saturated(tensor);
    lost = std::min(squared_error, LostSquares(tensor, read_rows).total(pool));
    if (lost <= std::max(kMostLost * squared_norm, kMostOfRest * (squared_error - lost))) return;
  }
  refuse(fmt::format("weights too small for {}: {} would lose {:.3g} % of the tensor", format.name,
                     format.dense ? "it" : "its fp16 scales", 100 * lost / squared_norm));
}

}  // namespace walsh
