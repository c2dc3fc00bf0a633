#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "codec/feedback/feedback_strip.h"
#include "codec/scalar/scalar_rows.h"
#include "codec/scalar/scalar_tensor.h"

namespace walsh::detail {
namespace {

// Encodes a strip of rows with error feedback. Each thread needs its own.
class ScalarStripEncoder {
 public:
  ScalarStripEncoder(const ScalarCode& code, const EncodeOptions& options,
                     const ErrorFeedback& feedback)
      : padded_(feedback.size()),
        strip_(feedback),
        coded_(code, options, FeedbackStrip::kRows, feedback.size()) {}

  FeedbackStrip& strip() { return strip_; }

  void encode(int64_t rows) {
    strip_.start(rows);
    for (int64_t begin = 0; begin < padded_; begin += FeedbackStrip::kBlock) {
      const int64_t end = std::min(padded_, begin + FeedbackStrip::kBlock);
      for (int64_t r = 0; r < rows; ++r) {
        coded_.encode(
            r, begin, end, [&](int64_t j) { return strip_.target(r, j); },
            [&](int64_t j, float value) { strip_.set(r, j, 1, &value); });
      }
      strip_.finish_block(end);
    }
    std::fill_n(factors_, rows, 1.0);
    if (coded_.has_factors()) strip_.row_factors(factors_);
  }

  // Stores a row after encode() has run.
  void store(int64_t r, const PassOutput& out) const { coded_.store(r, factors_[r], out); }

 private:
  int64_t padded_;
  FeedbackStrip strip_;
  ScalarRows coded_;
  double factors_[FeedbackStrip::kRows] = {};
};

// Holds what the threads of one call share.
class ScalarFeedback {
 public:
  explicit ScalarFeedback(const EncodeCall& call)
      : call_(call), format_(*call.tensor.format), passes_(call.tensor, call.storage) {}

  // Encodes the source rows x[end - begin][cols], and leaves the difference between them and the
  // decoded rows in x.
  void encode(int64_t begin, int64_t end, float* x) const {
    const int last = format_.passes - 1;
    const int64_t cols = call_.tensor.cols;
    std::vector<float> buffer(static_cast<size_t>(passes_.padded()));
    ScalarStripEncoder strip(format_.code[last], call_.options, *call_.feedback);
    for (int64_t row = begin; row < end; ++row) {
      float* source = x + (row - begin) * cols;
      for (int pass = 0; pass < last; ++pass)
        passes_.encode(pass, call_.options, row, buffer.data(), source);
      passes_.rotate(last, row, source, strip.strip().row(row - begin));
    }
    strip.encode(end - begin);
    for (int64_t row = begin; row < end; ++row) {
      strip.store(row - begin, passes_.output(last, row));
      passes_.subtract(last, row, buffer.data(), x + (row - begin) * cols);
    }
  }

 private:
  const EncodeCall& call_;
  const Format& format_;
  ScalarPasses passes_;
};

}  // namespace

void encode_scalar_with_feedback(const EncodeCall& call) {
  const ScalarFeedback encoder(call);
  const int64_t rows = call.tensor.rows, cols = call.tensor.cols;
  call.pool.for_each(ceil_div(rows, FeedbackStrip::kRows), [&](int64_t item) {
    const int64_t begin = item * FeedbackStrip::kRows;
    const int64_t end = std::min(rows, begin + FeedbackStrip::kRows);
    std::vector<float> x(static_cast<size_t>((end - begin) * cols));
    std::vector<double> norms;
    read_finite_rows(call.read_rows, begin, end, cols, x.data());
    for (int64_t r = 0; r < end - begin; ++r)
      norms.push_back(squared_length(x.data() + r * cols, cols));
    encoder.encode(begin, end, x.data());
    for (int64_t r = 0; r < end - begin; ++r) {
      call.errors.set(begin + r, squared_length(x.data() + r * cols, cols),
                      norms[static_cast<size_t>(r)]);
    }
  });
}

}  // namespace walsh::detail
