#include "api/linear_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/half.h"
#include "codec/codec.h"
#include "codec/encode/encode_tensor.h"
#include "codec/panels.h"
#include "codec/plain/dense.h"
#include "codec/weight_source.h"
#include "io/checksum.h"
#include "model/support.h"
#include "quantize/recipe/recipe.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// The hash covers everything that a file says of a layer.
uint64_t fingerprint_of(const LayerForm& form, const Tensor& tensor) {
  ChecksumStream stream;
  const auto add_text = [&](std::string_view text) {
    stream.update(std::as_bytes(std::span(text)));
  };
  add_text(fmt::format("{} {} {}", form.format->name, form.rows, form.cols));
  for (int pass = 0; pass < form.format->passes; ++pass) {
    const Rotation& r = form.rotation[pass];
    add_text(fmt::format(" {} {} {} {} ", rotation_kind_name(r.kind), r.block, r.seed, r.signs));
    for (const PassField& field : pass_fields(*form.format, pass, form.rows, form.cols))
      stream.update(tensor.pass[pass].*field.array);
  }
  return stream.digest().low;
}

constexpr int64_t kMaxRows = 256;  // this many input rows are multiplied together

void check_form(const LayerForm& form) {
  if (form.format->dense) {
    throw Error(ErrorCode::usage, std::string(form.format->name), "stores weights as they are");
  }
  if (form.format->retired) {
    throw Error(ErrorCode::usage, std::string(form.format->name),
                "no longer has kernels: quantize the original model again, or run it with walsh");
  }
  constexpr int64_t kMost = int64_t{1} << 31;
  if (form.rows < 1 || form.cols < 1 || form.rows > kMost || form.cols > kMost) {
    throw Error(ErrorCode::usage, "shape",
                fmt::format("{} x {}, expected sizes of 1 to 2^31", form.rows, form.cols));
  }
}

void from_float(const float* row, int64_t n, DType type, void* out) {
  if (type == DType::f32) {
    std::memcpy(out, row, static_cast<size_t>(n) * 4);
    return;
  }
  auto* halves = static_cast<uint16_t*>(out);
  if (type == DType::f16) {
    ops().to_f16(row, n, halves);
  } else {
    for (int64_t i = 0; i < n; ++i)
      halves[i] = f32_to_bf16(row[i]);
  }
}

const void* row_of(const MatrixView& m, int64_t row) {
  return static_cast<const std::byte*>(m.data) + row * m.stride * dtype_size(m.type);
}

// Calls body(begin, end) for parts of [0, count), handed to whichever thread is free, because a
// host's threads may be busy with its own work. `cost` is the total number of multiplications;
// small work stays on the calling thread, since waking others would cost more.
template <typename Body>
void for_parts(RunThreads run, int64_t count, int64_t cost, const Body& body) {
  constexpr int64_t kCheap = 1 << 16;
  constexpr int64_t kParts = 8;  // each thread gets about this many parts
  if (count == 1 || cost < kCheap) {
    body(0, count);
    return;
  }
  std::atomic<int64_t> next{0};
  run([&](int, int threads) {
    const int64_t size = std::max<int64_t>(1, count / (kParts * threads));
    for (;;) {
      const int64_t begin = next.fetch_add(size, std::memory_order_relaxed);
      if (begin >= count) return;
      body(begin, std::min(begin + size, count));
    }
  });
}

bool is_codes(const LayerArray& array) {
  return array.name.starts_with("codes");
}

}  // namespace

std::vector<LayerArray> layer_arrays(const LayerForm& form) {
  check_form(form);
  std::vector<LayerArray> result;
  for (const ArraySpec& spec : array_specs(*form.format, form.rows, form.cols)) {
    const auto rows = static_cast<int64_t>(spec.rows);
    result.push_back(
        {spec.suffix, rows, static_cast<int64_t>(spec.bytes) / std::max<int64_t>(rows, 1)});
  }
  return result;
}

Tensor stored_tensor(const LayerForm& form, std::span<const std::span<const std::byte>> arrays) {
  Tensor tensor;
  tensor.format = form.format;
  tensor.rows = form.rows;
  tensor.cols = form.cols;
  tensor.rotation[0] = form.rotation[0];
  tensor.rotation[1] = form.rotation[1];
  bind_arrays(tensor, arrays);
  return tensor;
}

LayerForm make_form(const std::string& type, int64_t rows, int64_t cols,
                    const std::string& rotation, int block, uint32_t seed, Effort effort) {
  Recipe recipe;
  recipe.type = &format_at(get_format(type), effort);
  recipe.rotation = parse_rotation_kind(rotation);
  recipe.block = block;
  check_recipe(recipe);
  LayerForm form = {recipe.type, rows, cols, {kNoRotation, kNoRotation}};
  check_form(form);
  for (int pass = 0; pass < form.format->passes; ++pass) {
    form.rotation[pass] = rotation_for(recipe, *form.format, "", pass);
    form.rotation[pass].seed = rotation_seed(seed, 0, pass);
  }
  return form;
}

void refuse_unsupported(const LayerForm& form, int device) {
  LoadOptions options;
  options.device = {true, device};
  const StoredForm stored = {form.format, {form.rotation[0], form.rotation[1]}};
  const std::string reason = why_not(stored, options);
  if (!reason.empty()) throw Error(ErrorCode::usage, "device " + options.device.name(), reason);
}

LinearOperator LinearOperator::encode(const LayerForm& form, const MatrixView& weights,
                                      const EncodeOptions& options, ThreadPool& pool,
                                      double* nmse) {
  check_form(form);
  if (weights.rows != form.rows || weights.cols != form.cols) {
    throw Error(
        ErrorCode::usage, "weights",
        fmt::format("{} x {}, expected {} x {}", weights.rows, weights.cols, form.rows, form.cols));
  }
  const auto read = [&](int64_t begin, int64_t end, float* out) {
    for (int64_t row = begin; row < end; ++row, out += form.cols)
      dense_to_f32(weights.type, row_of(weights, row), form.cols, out);
  };
  double error = 0, norm = 0;
  LinearOperator result;
  result.form_ = form;
  try {
    result.pack(encode_tensor(*form.format, form.rotation, options, form.rows, form.cols, read,
                              pool, &error, &norm));
  } catch (const Error& e) {
    if (!e.where().empty()) throw;
    throw Error(e.code(), "weights", e.reason());
  }
  if (nmse != nullptr) *nmse = norm > 0 ? error / norm : 0;
  return result;
}

LinearOperator LinearOperator::restore(const LayerForm& form,
                                       std::span<const std::span<const std::byte>> arrays) {
  const std::vector<LayerArray> expected = layer_arrays(form);
  if (arrays.size() != expected.size()) {
    throw Error(ErrorCode::bad_input, "arrays",
                fmt::format("{} of them, expected {}", arrays.size(), expected.size()));
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    const auto bytes = static_cast<size_t>(expected[i].rows * expected[i].row_bytes);
    if (arrays[i].size() == bytes) continue;
    throw Error(ErrorCode::bad_input, expected[i].name,
                fmt::format("{} bytes, expected {}", arrays[i].size(), bytes));
  }
  LinearOperator result;
  result.form_ = form;
  result.pack(stored_tensor(form, arrays));
  return result;
}

void LinearOperator::pack(const Tensor& tensor) {
  fingerprint_ = fingerprint_of(form_, tensor);
  const Format& format = *form_.format;
  const int64_t padded = padded_cols(format, form_.cols);
  for (int pass = 0; pass < format.passes; ++pass) {
    std::shared_ptr<const Rotator> rotator;
    if (form_.rotation[pass].kind != RotationKind::none)
      rotator = std::make_shared<Rotator>(form_.rotation[pass], padded);
    passes_.push_back({pack_panels(tensor, pass), std::move(rotator)});
    for (const PassField& field : pass_fields(format, pass, form_.rows, form_.cols)) {
      const std::span<const std::byte> array = tensor.pass[pass].*field.array;
      const bool codes = field.array == &PassArrays::codes;
      small_.emplace_back(array.begin(), codes ? array.begin() : array.end());
    }
  }
}

uint64_t LinearOperator::bytes() const {
  uint64_t sum = 0;
  for (const Pass& pass : passes_)
    sum += pass.panels.bytes();
  for (const std::vector<std::byte>& array : small_)
    sum += array.size();
  return sum;
}

std::vector<std::vector<std::byte>> LinearOperator::arrays() const {
  std::vector<std::vector<std::byte>> result = small_;
  size_t pass = 0;
  const std::vector<LayerArray> specs = layer_arrays(form_);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!is_codes(specs[i])) continue;
    result[i].resize(static_cast<size_t>(specs[i].rows * specs[i].row_bytes));
    unpack_codes(passes_[pass++].panels, result[i]);
  }
  return result;
}

void LinearOperator::decode(float* out, RunThreads run) const {
  const std::vector<std::vector<std::byte>> stored = arrays();
  const std::vector<std::span<const std::byte>> spans(stored.begin(), stored.end());
  const Tensor tensor = stored_tensor(form_, spans);
  for_parts(run, form_.rows, form_.rows * form_.cols, [&](int64_t first, int64_t last) {
    decode_rows(tensor, first, last, out + first * form_.cols);
  });
}

// Computes one product: converts the input rows to the forms that the passes read, then multiplies
// the panels.
class LinearOperator::Product {
 public:
  Product(const LinearOperator& layer, int64_t rows, bool exact)
      : layer_(layer),
        stride_(layer.passes_[0].panels.panels() * kPanelRows),
        y_(static_cast<size_t>(rows * stride_)) {
    const int planes = exact ? 0 : layer.form_.format->activation_planes;
    for (const Pass& pass : layer.passes_) {
      const int64_t cols = pass.panels.cols;
      Input input;
      input.transform = {pass.rotator.get(), layer.form_.cols, cols};
      input.rows = AlignedArray<float>(static_cast<size_t>((planes > 0 ? 0 : rows) * cols));
      const int group = pass.rotator ? kActivationGroup : kPlainGroup;
      if (planes > 0) input.quantized = ActivationsI8(rows, cols, group, planes);
      inputs_.push_back(std::move(input));
    }
  }

  void run(const MatrixView& x, int64_t begin, int64_t m, RunThreads threads) {
    const Ops& ops = walsh::ops();
    prepare(ops, x, begin, m, threads);
    const int64_t panels = layer_.passes_[0].panels.panels();
    const auto multiply = [&](int64_t first, int64_t last) {
      for (size_t p = 0; p < inputs_.size(); ++p) {
        const PanelMatrix& w = layer_.passes_[p].panels;
        Input& input = inputs_[p];
        if (input.quantized.q.empty()) {
          ops.matmul_f32({w, input.rows.data(), w.cols, m, y_.data(), stride_, first, last, p > 0});
        } else {
          ops.matmul_i8({w, input.quantized, m, y_.data(), stride_, first, last, p > 0});
        }
      }
    };
    for_parts(threads, panels, m * panels * kPanelRows * layer_.form_.cols, multiply);
  }
  const float* row(int64_t t) const { return y_.data() + t * stride_; }

 private:
  struct Input {
    InputTransform transform;
    ActivationsI8 quantized;
    AlignedArray<float> rows;
  };

  void prepare(const Ops& ops, const MatrixView& x, int64_t begin, int64_t m, RunThreads threads) {
    const int64_t cols = layer_.form_.cols, padded = layer_.passes_[0].panels.cols;
    for_parts(threads, m, m * padded, [&](int64_t first, int64_t last) {
      AlignedArray<float> values(static_cast<size_t>(padded)), scratch(values.size());
      for (int64_t t = first; t < last; ++t) {
        dense_to_f32(x.type, row_of(x, begin + t), cols, values.data());
        for (Input& input : inputs_) {
          const bool coded = !input.quantized.q.empty();
          prepare_input(ops, input.transform, values.data(), nullptr, 0,
                        coded ? scratch.data() : input.rows.data() + t * padded,
                        coded ? &input.quantized : nullptr, t);
        }
      }
    });
  }

  const LinearOperator& layer_;
  int64_t stride_;
  AlignedArray<float> y_;
  std::vector<Input> inputs_;
};

void LinearOperator::multiply(const MatrixView& x, void* y, int64_t y_stride, bool exact,
                              RunThreads run) const {
  if (x.cols != form_.cols) {
    throw Error(ErrorCode::usage, "input",
                fmt::format("rows of {} values, expected {}", x.cols, form_.cols));
  }
  if (x.rows == 0) return;
  const int64_t most = std::min(kMaxRows, x.rows);
  Product product(*this, most, exact);
  for (int64_t begin = 0; begin < x.rows; begin += most) {
    const int64_t m = std::min(most, x.rows - begin);
    product.run(x, begin, m, run);
    for_parts(run, m, m * form_.rows, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        auto* out = static_cast<std::byte*>(y) + (begin + t) * y_stride * dtype_size(x.type);
        from_float(product.row(t), form_.rows, x.type, out);
      }
    });
  }
}

}  // namespace walsh
