#include "codec/encode/cuda/encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/checked.h"
#include "codec/encode/cuda/slice_stream.h"
#include "codec/encode/encode_source.h"
#include "codec/plain/dense.h"
#include "codec/scalar/cuda/encode_launch.h"
#include "codec/scalar/cuda/encode_plan.h"
#include "codec/trellis/cuda/gpu_tiles.h"

namespace walsh::cuda {
namespace {

using encoding::ConvertArgs;
using encoding::PassArgs;
using encoding::PassPlan;
using encoding::Source;
using encoding::SourceType;

constexpr uint64_t kNoRefusal = ~uint64_t{0};

SourceType source_type(DType type) {
  return type == DType::f32   ? SourceType::f32
         : type == DType::f16 ? SourceType::f16
                              : SourceType::bf16;
}

struct Totals {
  double norm = 0, error = 0;
  uint64_t first_refusal = kNoRefusal;
};

void grow(Buffer& buffer, uint64_t bytes) {
  if (buffer.bytes() < bytes) buffer = Buffer(bytes);
}

// Copies host data to the device and fills the rest up to `room` bytes with zeros.
void send(Buffer& buffer, const void* host, uint64_t bytes, uint64_t room, Stream stream) {
  grow(buffer, room);
  copy_to_device(buffer.as(), host, bytes, stream);
  fill_zero(buffer.as<std::byte>() + bytes, room - bytes, stream);
}

float value_at(const Tensor& source, std::span<const float> scales, int64_t row, int64_t col) {
  const auto at = static_cast<size_t>(row * source.cols + col);
  const auto size = static_cast<size_t>(dtype_size(source.format->dtype));
  std::byte bytes[sizeof(float)];
  if (source.on_gpu) {
    copy_to_host(bytes, source.data.data() + at * size, size, nullptr);
    synchronize(nullptr);
  } else {
    std::memcpy(bytes, source.data.data() + at * size, size);
  }
  float value;
  dense_to_f32(source.format->dtype, bytes, 1, &value);
  return scales.empty() ? value : value * scales[static_cast<size_t>(col)];
}

// Throws the error that encode_tensor would give for the first value that cannot be encoded.
[[noreturn]] void report(uint64_t refusal, const Format& format, const Tensor& source,
                         std::span<const float> scales) {
  const auto cols = static_cast<uint64_t>(source.cols);
  const auto col = static_cast<int64_t>(refusal % cols);
  const auto row = static_cast<int64_t>(refusal / cols / 4);
  const auto stage = refusal / cols % 4;
  std::string what = "value too large to rotate";
  if (stage == encoding::kNotFinite) {
    what = std::isnan(value_at(source, scales, row, col)) ? "NaN" : "infinity";
  } else if (format.dense) {
    what = "value too large for " + std::string(format.name);
  }
  detail::refuse_value(what, row, col);
}

Tensor tensor_of(const EncodedMatrix& encoded, std::span<const std::span<const std::byte>> arrays,
                 double* squared_error, double* squared_norm) {
  Tensor tensor;
  tensor.format = encoded.format;
  tensor.rows = encoded.rows;
  tensor.cols = encoded.cols;
  for (int pass = 0; pass < encoded.format->passes; ++pass)
    tensor.rotation[pass] = encoded.rotation[pass];
  bind_arrays(tensor, arrays);
  if (squared_error != nullptr) *squared_error = encoded.squared_error;
  if (squared_norm != nullptr) *squared_norm = encoded.squared_norm;
  return tensor;
}

template <class T>
T* row_of(const Buffer& buffer, int64_t row, int64_t row_bytes) {
  return reinterpret_cast<T*>(buffer.as<std::byte>() + row * row_bytes);
}

}  // namespace

struct GpuEncoder::Impl {
  Impl(int index, ThreadPool* pool, uint64_t slice_bytes)
      : device(use_device(index)), slices(slice_bytes, pool), tiles(device) {}

  std::vector<PassPlan> plans(const Format& format, const Rotation (&rotation)[2],
                              const EncodeOptions& options, int64_t cols) const;
  void encode_slice(const std::vector<PassPlan>& plans, const EncodedMatrix& out, Source source,
                    int64_t first, int64_t rows);
  void convert_slice(const EncodedMatrix& out, const Source& source, int64_t first, int64_t rows);
  void set_outputs(PassArgs& args, const EncodedMatrix& out, int pass, int64_t first) const;
  void make_room(const Format& format, const std::vector<PassPlan>& plans, const Tensor& source);

  DeviceInfo device;
  SliceStream slices;
  Buffer scales, factors[2];  // The current tensor has these.
  // Its shape is [slice rows][cols] float; it is used between two passes.
  Buffer residual;
  Buffer norms, errors, totals;  // They have a value per block of a slice; `totals` is a Totals.
  Buffer column_partial, column_norms;
  GpuTiles tiles;
  std::unique_ptr<GpuTiles> shared_tiles[2];
};

// Returns the plans of all passes, or none if some pass is not supported.
std::vector<PassPlan> GpuEncoder::Impl::plans(const Format& format, const Rotation (&rotation)[2],
                                              const EncodeOptions& options, int64_t cols) const {
  std::vector<PassPlan> result;
  for (int pass = 0; pass < format.passes; ++pass) {
    std::optional<PassPlan> plan = encoding::plan_pass(format, pass, rotation[pass], options, cols);
    if (!plan || plan->shared_bytes > device.shared_bytes) return {};
    result.push_back(std::move(*plan));
  }
  return result;
}

GpuEncoder::GpuEncoder(int index, ThreadPool* pool, uint64_t slice_bytes)
    : impl_(std::make_unique<Impl>(index, pool, slice_bytes)) {}
GpuEncoder::~GpuEncoder() = default;

bool GpuEncoder::supports(const Format& format, const Rotation (&rotation)[2], int64_t cols) const {
  return format.dense || !impl_->plans(format, rotation, {}, cols).empty();
}

void GpuEncoder::Impl::make_room(const Format& format, const std::vector<PassPlan>& plans,
                                 const Tensor& source) {
  const int64_t rows = std::min(slices.slice_rows(source, 1), source.rows);
  int64_t spans = (source.cols + encoding::kSpan - 1) / encoding::kSpan;
  for (const PassPlan& plan : plans)
    spans = std::max<int64_t>(spans, plan.args.spans);
  const auto blocks = static_cast<uint64_t>(rows * spans);
  grow(norms, blocks * sizeof(double));
  grow(errors, blocks * sizeof(double));
  grow(totals, sizeof(Totals));
  if (format.passes > 1) grow(residual, static_cast<uint64_t>(rows * source.cols) * sizeof(float));
}

EncodedMatrix GpuEncoder::encode(const Format& format, const Rotation (&rotation)[2],
                                 const EncodeOptions& options, const Tensor& source,
                                 std::span<const float> column_scales) {
  Impl& impl = *impl_;
  const std::vector<ArraySpec> specs = array_specs(format, source.rows, source.cols);
  const std::vector<PassPlan> plans = impl.plans(format, rotation, options, source.cols);
  if (!format.dense && plans.empty()) {
    throw Error(ErrorCode::bad_input, "",
                "no GPU encoder for " + std::string(format.name) + " with this rotation and shape");
  }
  EncodedMatrix out;
  out.format = &format;
  out.rows = source.rows;
  out.cols = source.cols;
  for (const ArraySpec& spec : specs)
    out.arrays.emplace_back(spec.bytes);
  for (int pass = 0; pass < format.passes; ++pass)
    out.rotation[pass] = rotation[pass];

  impl.make_room(format, plans, source);
  const Stream stream = impl.slices.stream();
  Totals totals;
  copy_to_device(impl.totals.as(), &totals, sizeof(totals), stream);
  for (size_t pass = 0; pass < plans.size(); ++pass) {
    const uint64_t bytes = plans[pass].factors.size() * sizeof(float);
    send(impl.factors[pass], plans[pass].factors.data(), bytes, bytes, stream);
  }
  if (!column_scales.empty()) {
    send(impl.scales, column_scales.data(), column_scales.size_bytes(),
         static_cast<uint64_t>(round_up(source.cols, 8)) * sizeof(float), stream);
  }
  Source slice{};
  slice.column_scales = column_scales.empty() ? nullptr : impl.scales.as<const float>();
  slice.type = source_type(source.format->dtype);
  // Slices in the encoder's own buffers are aligned; memory that others allocated need not be.
  const bool misplaced = reinterpret_cast<uintptr_t>(source.data.data()) % 16 != 0;
  slice.aligned = source.cols % 8 == 0 && !(source.on_gpu && misplaced);
  slice.cols = source.cols;
  impl.slices.for_each(source, 1, [&](const void* values, int64_t first, int64_t rows) {
    slice.values = values;
    if (format.dense) {
      impl.convert_slice(out, slice, first, rows);
    } else {
      impl.encode_slice(plans, out, slice, first, rows);
    }
  });
  copy_to_host(&totals, impl.totals.as(), sizeof(totals), stream);
  synchronize(stream);
  if (totals.first_refusal != kNoRefusal) {
    report(totals.first_refusal, format, source, column_scales);
  }
  out.squared_error = totals.error;
  out.squared_norm = totals.norm;
  return out;
}

void GpuEncoder::Impl::set_outputs(PassArgs& args, const EncodedMatrix& out, int pass,
                                   int64_t first) const {
  size_t next = 0;
  for (int p = 0; p <= pass; ++p) {
    const ScalarCode& code = out.format->code[p];
    const int64_t padded = args.padded;
    args.codes = row_of<uint32_t>(out.arrays[next++], first, code_bytes_per_row(code, padded));
    args.scales = row_of<uint16_t>(out.arrays[next++], first, 2 * groups_per_row(code, padded));
    if (code.has_offset) {
      args.offsets = row_of<uint16_t>(out.arrays[next++], first, 2 * groups_per_row(code, padded));
    }
    if (code.sub_group != 0) {
      args.sub_scales =
          row_of<uint16_t>(out.arrays[next++], first, 2 * sub_groups_per_row(code, padded));
    }
  }
}

void GpuEncoder::Impl::encode_slice(const std::vector<PassPlan>& plans, const EncodedMatrix& out,
                                    Source source, int64_t first, int64_t rows) {
  for (size_t pass = 0; pass < plans.size(); ++pass) {
    const bool last = pass + 1 == plans.size();
    PassArgs args = plans[pass].args;
    args.source = source;
    args.refusals = {&totals.as<Totals>()->first_refusal, first};
    args.factors = args.block == 0 ? nullptr : factors[pass].as<const float>();
    set_outputs(args, out, static_cast<int>(pass), first);
    args.residual = last ? nullptr : residual.as<float>();
    args.norms = pass == 0 ? norms.as<double>() : nullptr;
    args.errors = errors.as<double>();
    encoding::launch_pass(plans[pass].kind, plans[pass].thresholds, args, rows, slices.stream());
    if (pass == 0) {
      encoding::launch_sum(norms.as<double>(), rows * args.spans, &totals.as<Totals>()->norm,
                           slices.stream());
    }
    if (last) {
      encoding::launch_sum(errors.as<double>(), rows * args.spans, &totals.as<Totals>()->error,
                           slices.stream());
    }
    // The next pass encodes the residual, which is already balanced.
    source.values = residual.as();
    source.column_scales = nullptr;
    source.type = SourceType::f32;
  }
}

void GpuEncoder::Impl::convert_slice(const EncodedMatrix& out, const Source& source, int64_t first,
                                     int64_t rows) {
  ConvertArgs args{};
  args.source = source;
  args.refusals = {&totals.as<Totals>()->first_refusal, first};
  args.spans = static_cast<int>((source.cols + encoding::kSpan - 1) / encoding::kSpan);
  args.target = source_type(out.format->dtype);
  args.out = row_of<std::byte>(out.arrays[0], first, source.cols * dtype_size(out.format->dtype));
  args.norms = norms.as<double>();
  args.errors = errors.as<double>();
  const Stream stream = slices.stream();
  encoding::launch_convert(args, rows, stream);
  encoding::launch_sum(args.norms, rows * args.spans, &totals.as<Totals>()->norm, stream);
  encoding::launch_sum(args.errors, rows * args.spans, &totals.as<Totals>()->error, stream);
}

Tensor GpuEncoder::encode_on_device(const Format& format, const Rotation (&rotation)[2],
                                    const EncodeOptions& options, const Tensor& source,
                                    std::span<const float> column_scales, double* squared_error,
                                    double* squared_norm) {
  const auto encoded = std::make_shared<const EncodedMatrix>(
      encode(format, rotation, options, source, column_scales));
  std::vector<std::span<const std::byte>> arrays;
  for (const Buffer& array : encoded->arrays)
    arrays.emplace_back(array.as<const std::byte>(), array.bytes());
  Tensor tensor = tensor_of(*encoded, arrays, squared_error, squared_norm);
  tensor.owner = encoded;
  tensor.on_gpu = true;
  return tensor;
}

Tensor GpuEncoder::encode_to_host(const Format& format, const Rotation (&rotation)[2],
                                  const EncodeOptions& options, const Tensor& source,
                                  std::span<const float> column_scales, double* squared_error,
                                  double* squared_norm) {
  const EncodedMatrix encoded = encode(format, rotation, options, source, column_scales);
  const auto storage = detail::allocate_tensor(format, source.rows, source.cols);
  for (size_t i = 0; i < encoded.arrays.size(); ++i) {
    const Buffer& array = encoded.arrays[i];
    copy_to_host(storage->arrays[i].data(), array.as(), array.bytes(), impl_->slices.stream());
  }
  synchronize(impl_->slices.stream());
  const std::vector<std::span<const std::byte>> arrays(storage->arrays.begin(),
                                                       storage->arrays.end());
  Tensor tensor = tensor_of(encoded, arrays, squared_error, squared_norm);
  tensor.owner = storage;
  return tensor;
}

walsh::detail::TileDevice& GpuEncoder::tiles() {
  return impl_->tiles;
}

std::vector<walsh::detail::TileDevice*> GpuEncoder::shared_tiles() {
  std::vector<walsh::detail::TileDevice*> result;
  for (auto& tiles : impl_->shared_tiles) {
    if (!tiles) tiles = std::make_unique<GpuTiles>(impl_->device, GpuTiles::kBatchWaves, true);
    result.push_back(tiles.get());
  }
  return result;
}

void GpuEncoder::add_column_norms(const Tensor& source, std::span<double> norms) {
  Impl& impl = *impl_;
  const Stream stream = impl.slices.stream();
  const int64_t step = impl.slices.slice_rows(source, encoding::kNormRows);
  const int64_t chunks =
      (std::min(step, source.rows) + encoding::kNormRows - 1) / encoding::kNormRows;
  grow(impl.column_partial, static_cast<uint64_t>(chunks * source.cols) * sizeof(double));
  send(impl.column_norms, norms.data(), norms.size_bytes(), norms.size_bytes(), stream);
  Source slice{};
  slice.type = source_type(source.format->dtype);
  slice.cols = source.cols;
  impl.slices.for_each(source, encoding::kNormRows, [&](const void* values, int64_t, int64_t rows) {
    slice.values = values;
    encoding::launch_column_norms(slice, rows, impl.column_partial.as<double>(),
                                  impl.column_norms.as<double>(), stream);
  });
  copy_to_host(norms.data(), impl.column_norms.as(), norms.size_bytes(), stream);
  synchronize(stream);
}

}  // namespace walsh::cuda
