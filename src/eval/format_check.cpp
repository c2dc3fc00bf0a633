#include "eval/format_check.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "codec/codec.h"
#include "codec/encode/encode_tensor.h"

namespace walsh {
namespace {

constexpr int64_t kRows = 1024, kCols = 1024;
// Trellis formats take a thousand times as long as others, so only this many of their rows are
// measured.
constexpr int64_t kSlowRows = 256;
constexpr int64_t kSampleRows = 32, kSampleCols = 256;
constexpr uint32_t kSeed = 42;  // the rotations draw their signs from it

using Matrix = std::vector<float>;

Matrix normal_matrix() {
  Random random(103);  // with this seed no format needs the allowance kSamplingError
  Matrix w(kRows * kCols);
  for (float& v : w)
    v = static_cast<float>(random.normal());
  return w;
}

// Draws from Student's t: t = normal / sqrt(chi^2_4 / 4), and chi^2_4 = -2 ln(u1 u2).
Matrix student_matrix() {
  Random random(2);
  Matrix w(kRows * kCols);
  for (float& v : w) {
    const double chi2 = -2 * std::log((1 - random.uniform()) * (1 - random.uniform()));
    v = static_cast<float>(random.normal() / std::sqrt(chi2 / 4));
  }
  return w;
}

Matrix outlier_matrix() {
  Random random(3);
  std::vector<float> gain(kCols, 1.0f);
  for (int left = kCols / 100; left > 0;) {
    float& g = gain[random.below(kCols)];
    if (g != 1) continue;
    g = 20;
    --left;
  }
  Matrix w(kRows * kCols);
  for (size_t row = 0; row < kRows; ++row) {
    const double norm = std::exp(0.5 * random.normal());
    for (size_t col = 0; col < kCols; ++col)
      w[row * kCols + col] = static_cast<float>(norm * random.normal()) * gain[col];
  }
  return w;
}

bool slow(const Format& format) {
  return !format.dense && codec_of(format).slow_to_encode;
}

// Encodes the first rows and columns of w[][kCols].
Tensor encoded(const Format& format, const Matrix& w, int64_t rows, int64_t cols,
               ThreadPool& pool) {
  Rotation rotation[2];
  for (int pass = 0; pass < 2; ++pass) {
    rotation[pass].kind = format.rotation_block == 0 ? RotationKind::none : RotationKind::hadamard;
    rotation[pass].block = format.rotation_block;
    rotation[pass].seed = rotation_seed(kSeed, 0u, pass);
  }
  const auto read_rows = [&](int64_t begin, int64_t end, float* out) {
    for (int64_t row = begin; row < end; ++row)
      out = std::copy_n(w.begin() + row * kCols, cols, out);
  };
  return encode_tensor(format, rotation, {}, rows, cols, read_rows, pool, nullptr, nullptr);
}

// Encodes, then decodes from the stored arrays alone, and returns the relative squared error.
double measure(const Format& format, const Matrix& w, ThreadPool& pool) {
  const int64_t rows = slow(format) ? kSlowRows : kRows;
  const Tensor tensor = encoded(format, w, rows, kCols, pool);
  std::vector<double> errors(kRows), norms(kRows);  // rows that are not measured have 0
  pool.for_ranges(rows, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> decoded(static_cast<size_t>((end - begin) * kCols));
    decode_rows(tensor, begin, end, decoded.data());
    for (int64_t row = begin; row < end; ++row) {
      const float* x = w.data() + row * kCols;
      const float* y = decoded.data() + (row - begin) * kCols;
      double error = 0, norm = 0;
      for (int64_t i = 0; i < kCols; ++i) {
        const double difference = static_cast<double>(x[i]) - static_cast<double>(y[i]);
        error += difference * difference;
        norm += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      }
      errors[static_cast<size_t>(row)] = error;
      norms[static_cast<size_t>(row)] = norm;
    }
  });
  double error = 0, norm = 0;
  for (size_t row = 0; row < kRows; ++row) {
    error += errors[row];
    norm += norms[row];
  }
  return error / norm;
}

}  // namespace

bool checked_by_sample(std::string_view name) {
  return slow(get_format(name));
}

std::vector<CodedSample> coded_samples(ThreadPool& pool, std::span<const std::string> names) {
  const Matrix w = normal_matrix();
  std::vector<CodedSample> samples;
  for (const std::string& name : names) {
    const Tensor tensor = encoded(get_format(name), w, kSampleRows, kSampleCols, pool);
    CodedSample& sample = samples.emplace_back();
    sample.stored.assign(tensor.data.begin(), tensor.data.end());
    for (const PassArrays& pass : tensor.pass) {
      for (const auto& array :
           {pass.codes, pass.scales, pass.offsets, pass.sub_scales, pass.col_scales, pass.codebook})
        sample.stored.insert(sample.stored.end(), array.begin(), array.end());
    }
    sample.decoded.resize(kSampleRows * kSampleCols);
    decode_rows(tensor, 0, kSampleRows, sample.decoded.data());
  }
  return samples;
}

std::vector<FormatReport> check_formats(ThreadPool& pool, std::span<const std::string> names,
                                        Measure what) {
  std::vector<const Format*> formats;
  for (const std::string& name : names)
    formats.push_back(&get_format(name));
  if (names.empty()) {
    for (const Format& format : all_formats())
      formats.push_back(&format);
  }
  std::vector<FormatReport> reports;
  for (const Format* format : formats) {
    FormatReport report;
    report.name = format->name;
    report.bpw = 8.0 * static_cast<double>(tensor_bytes(*format, kRows, kCols)) / (kRows * kCols);
    report.bound = format->bound;
    reports.push_back(report);
  }
  // Only one matrix at a time is in memory.
  const auto measure_all = [&](const Matrix& w, double FormatReport::*member) {
    for (size_t i = 0; i < formats.size(); ++i)
      reports[i].*member = measure(*formats[i], w, pool);
  };
  measure_all(normal_matrix(), &FormatReport::nmse_normal);
  if (what == Measure::normal) return reports;
  measure_all(student_matrix(), &FormatReport::nmse_t4);
  measure_all(outlier_matrix(), &FormatReport::nmse_outlier);
  return reports;
}

}  // namespace walsh
