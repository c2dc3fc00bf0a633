#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/half.h"
#include "quantize/feedback/feedback_encoder.h"
#include "quantize/feedback/feedback_strip.h"
#include "quantize/scalar/encoder_codebook.h"
#include "quantize/scalar/encoder_search.h"
#include "quantize/scalar/scalar_passes.h"

namespace walsh::detail {
namespace {

// A factor beyond these is no correction of a scale but a row that was lost.
constexpr double kLeastFactor = 0.5, kLargestFactor = 2;

// The nearest value of a scalar code at a scale and offset.
class ValueRounder {
 public:
  explicit ValueRounder(const ScalarCode& code) {
    if (code.levels == nullptr) return;
    codebook_.emplace(code);
    ladder_ = codebook_->ladder(1, 1);
  }

  struct Rounded {
    uint8_t code;
    float value;
  };
  Rounded operator()(float x, float scale, float offset) const {
    if (scale == 0) return {codebook_ ? codebook_->zero_code() : uint8_t{0}, offset};
    const float u = (x - offset) / scale;
    if (!codebook_) {
      const float level = std::clamp(std::round(u), -127.0f, 127.0f);
      return {static_cast<uint8_t>(static_cast<int8_t>(level)), scale * level + offset};
    }
    int rank = 0;
    for (int t = 0; t + 1 < ladder_.count; ++t)
      rank += u > ladder_.thresholds[t];
    return {codebook_->code(static_cast<uint8_t>(rank)), scale * ladder_.levels[rank] + offset};
  }

 private:
  std::optional<Codebook> codebook_;
  Ladder ladder_{};
};

// Scales of a row that is being encoded, as they are stored.
struct RowScales {
  std::vector<uint16_t> scales, offsets, sub_scales;
};

// Encodes strips of rows; one per thread.
class ScalarStripEncoder {
 public:
  ScalarStripEncoder(const ScalarCode& code, const EncodeOptions& options,
                     const ErrorFeedback& feedback)
      : code_(code),
        options_(options),
        padded_(feedback.size()),
        group_(code.group == 0 ? padded_ : code.group),
        round_(code),
        strip_(feedback),
        codes_(static_cast<size_t>(FeedbackStrip::kRows * padded_)),
        targets_(static_cast<size_t>(group_)),
        unused_(static_cast<size_t>(code_bytes_per_row(code, padded_))) {
    for (RowScales& row : rows_) {
      const auto groups = static_cast<size_t>(groups_per_row(code, padded_));
      row.scales.resize(groups);
      if (code.has_offset) row.offsets.resize(groups);
      row.sub_scales.resize(static_cast<size_t>(sub_groups_per_row(code, padded_)));
    }
  }

  FeedbackStrip& strip() { return strip_; }

  // `out` has the places of the first row's codes and scales.
  void encode(int64_t rows, PassOutput out) {
    strip_.start(rows);
    for (int64_t begin = 0; begin < padded_; begin += FeedbackStrip::kBlock) {
      const int64_t end = std::min(padded_, begin + FeedbackStrip::kBlock);
      for (int64_t r = 0; r < rows; ++r)
        encode_block(r, begin, end);
      strip_.finish_block(end);
    }
    double factors[FeedbackStrip::kRows];
    std::fill_n(factors, rows, 1.0);
    if (code_.fit == ScaleFit::search && options_.scale_rule == ScaleRule::search) {
      strip_.row_factors(factors);
    }
    for (int64_t r = 0; r < rows; ++r) {
      store(r, std::clamp(factors[r], kLeastFactor, kLargestFactor), out);
      out.codes += code_bytes_per_row(code_, padded_);
      out.scales += groups_per_row(code_, padded_);
      if (code_.has_offset) out.offsets += groups_per_row(code_, padded_);
      if (code_.sub_group != 0) out.sub_scales += sub_groups_per_row(code_, padded_);
    }
  }

 private:
  void encode_block(int64_t r, int64_t begin, int64_t end) {
    RowScales& row = rows_[r];
    for (int64_t j = begin; j < end; ++j) {
      const auto group = static_cast<size_t>(j / group_);
      if (j % group_ == 0) choose_scales(r, j);
      float scale = f16_to_f32(row.scales[group]);
      if (code_.sub_group != 0) {
        scale *= f16_to_f32(row.sub_scales[static_cast<size_t>(j / code_.sub_group)]);
      }
      const float offset = code_.has_offset ? f16_to_f32(row.offsets[group]) : 0.0f;
      const ValueRounder::Rounded rounded = round_(strip_.target(r, j), scale, offset);
      codes_[static_cast<size_t>(r * padded_ + j)] = rounded.code;
      strip_.set(r, j, 1, &rounded.value);
    }
  }

  // By the plain encoder, whose codes are not needed.
  void choose_scales(int64_t r, int64_t begin) {
    const int64_t n = std::min(group_, padded_ - begin);
    for (int64_t i = 0; i < n; ++i)
      targets_[static_cast<size_t>(i)] = strip_.target(r, begin + i);
    RowScales& row = rows_[r];
    const auto group = static_cast<size_t>(begin / group_);
    PassOutput out;
    out.codes = unused_.data();
    out.scales = &row.scales[group];
    if (code_.has_offset) out.offsets = &row.offsets[group];
    if (code_.sub_group != 0) {
      out.sub_scales = &row.sub_scales[static_cast<size_t>(begin / code_.sub_group)];
    }
    encode_rows(code_, options_, targets_.data(), 1, n, out);
  }

  // Puts codes and scales of a row times its factor where they belong.
  void store(int64_t r, double factor, const PassOutput& out) {
    const RowScales& row = rows_[r];
    const auto scaled = [&](uint16_t half) {
      return saturated_half(static_cast<float>(double{f16_to_f32(half)} * factor), kLargestHalf);
    };
    pack_codes(code_, codes_.data() + r * padded_, padded_, out.codes);
    for (size_t g = 0; g < row.scales.size(); ++g) {
      out.scales[g] = code_.sub_group == 0 ? scaled(row.scales[g]) : row.scales[g];
      if (code_.has_offset) out.offsets[g] = scaled(row.offsets[g]);
    }
    for (size_t g = 0; g < row.sub_scales.size(); ++g)
      out.sub_scales[g] = scaled(row.sub_scales[g]);
  }

  const ScalarCode& code_;
  const EncodeOptions& options_;
  int64_t padded_, group_;
  ValueRounder round_;
  FeedbackStrip strip_;
  std::vector<uint8_t> codes_;  // [kRows][padded]
  RowScales rows_[FeedbackStrip::kRows];
  AlignedArray<float> targets_;    // of a group
  std::vector<std::byte> unused_;  // codes of the search for scales
};

// The work of one call, shared by the threads.
class ScalarFeedback {
 public:
  ScalarFeedback(const Tensor& tensor, const EncodeOptions& options, const ErrorFeedback& feedback,
                 const TensorStorage& storage)
      : tensor_(tensor),
        format_(*tensor.format),
        options_(options),
        feedback_(feedback),
        passes_(tensor, storage) {}

  // x[end - begin][cols]: source rows, of which the difference to the decoded ones is left.
  void encode(int64_t begin, int64_t end, float* x) const {
    const int last = format_.passes - 1;
    const int64_t cols = tensor_.cols;
    std::vector<float> buffer(static_cast<size_t>(passes_.padded()));
    ScalarStripEncoder strip(format_.code[last], options_, feedback_);
    for (int64_t row = begin; row < end; ++row) {
      float* source = x + (row - begin) * cols;
      for (int pass = 0; pass < last; ++pass)
        passes_.encode(pass, options_, row, buffer.data(), source);
      passes_.rotate(last, row, source, strip.strip().row(row - begin));
    }
    strip.encode(end - begin, passes_.output(last, begin));
    for (int64_t row = begin; row < end; ++row)
      passes_.subtract(last, row, buffer.data(), x + (row - begin) * cols);
  }

 private:
  const Tensor& tensor_;
  const Format& format_;
  const EncodeOptions& options_;
  const ErrorFeedback& feedback_;
  ScalarPasses passes_;
};

}  // namespace

void encode_scalar_with_feedback(const Tensor& tensor, const EncodeOptions& options,
                                 const ErrorFeedback& feedback, ReadRows read_rows,
                                 const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors) {
  const ScalarFeedback encoder(tensor, options, feedback, storage);
  const int64_t rows = tensor.rows, cols = tensor.cols;
  pool.for_each((rows + FeedbackStrip::kRows - 1) / FeedbackStrip::kRows, [&](int64_t item) {
    const int64_t begin = item * FeedbackStrip::kRows;
    const int64_t end = std::min(rows, begin + FeedbackStrip::kRows);
    std::vector<float> x(static_cast<size_t>((end - begin) * cols));
    std::vector<double> norms;
    read_finite_rows(read_rows, begin, end, cols, x.data());
    for (int64_t r = 0; r < end - begin; ++r)
      norms.push_back(squared_length(x.data() + r * cols, cols));
    encoder.encode(begin, end, x.data());
    for (int64_t r = 0; r < end - begin; ++r) {
      errors.set(begin + r, squared_length(x.data() + r * cols, cols),
                 norms[static_cast<size_t>(r)]);
    }
  });
}

}  // namespace walsh::detail
