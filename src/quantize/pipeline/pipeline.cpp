#include "quantize/pipeline/pipeline.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "io/checksum.h"
#include "io/gguf_writer.h"
#include "io/json.h"
#include "io/printable.h"
#include "quantize/encode/bounds.h"
#include "quantize/file/walsh_file.h"
#include "quantize/pipeline/resume.h"
#include "quantize/pipeline/run_time.h"
#include "walsh/error.h"
#include "walsh/version.h"

namespace walsh {
namespace {

constexpr size_t kWriteChunk = size_t{16} << 20;  // bytes of a mapped tensor resident at a time

GgmlType ggml_type(DType type) {
  switch (type) {
    case DType::f32:
      return GgmlType::f32;
    case DType::f16:
      return GgmlType::f16;
    case DType::bf16:
      return GgmlType::bf16;
  }
  throw Error(ErrorCode::internal, "", "unknown element type");
}

// The folder's name, which may be any bytes, as the UTF-8 that strings of a GGUF file are.
std::string model_name(const std::string& folder) {
  const auto path = std::filesystem::absolute(folder).lexically_normal();
  const auto name = path.has_filename() ? path.filename() : path.parent_path().filename();
  return one_line(name.string());
}

std::vector<uint32_t> rotation_numbers(const Rotation& r) {
  return {static_cast<uint32_t>(r.kind), static_cast<uint32_t>(r.block), r.seed, r.signs};
}

void add_texts(GgufWriter& writer, const Compressor& source) {
  const Json config = parse_json(source.config_json(), source.path() + "/config.json");
  const auto model_type = find_string(config, "model_type", source.path() + "/config.json");
  writer.set("general.architecture", GgufValue::text(model_type.value_or("unknown")));
  writer.set("general.name", GgufValue::text(model_name(source.path())));
  writer.set(keys::kVersion, GgufValue::number(uint32_t{kFileFormatVersion}));
  writer.set(keys::kHeader, GgufValue::numbers(std::vector<uint64_t>(2)));
  writer.set(keys::kProducer, GgufValue::text(std::string("walsh ") + kVersion));
  writer.set(keys::kRecipe, GgufValue::text(recipe_json(source.recipe())));
  if (source.folded()) {
    writer.set(keys::kFold, GgufValue::numbers(rotation_numbers(fold_rotation(source.recipe()))));
  }
  const auto text = [&](const char* key, std::string_view value) {
    writer.set(key, GgufValue::text(std::string(value)));
  };
  text(keys::kConfig, source.config_json());
  text(keys::kGenerationConfig, source.generation_config_json());
  text(keys::kTokenizer, source.tokenizer_json());
  text(keys::kTokenizerConfig, source.tokenizer_config_json());
}

void add_table(GgufWriter& writer, const std::vector<TensorPlan>& tensors) {
  std::vector<std::string> names, formats, sources;
  std::vector<uint64_t> shapes;
  std::vector<uint8_t> linear;
  std::vector<uint32_t> rotations, outputs;
  bool any_output = false;
  for (const TensorPlan& t : tensors) {
    const std::vector<uint32_t> output = rotation_numbers(t.output_rotation);
    outputs.insert(outputs.end(), output.begin(), output.end());
    any_output = any_output || t.output_rotation.kind != RotationKind::none;
    names.push_back(t.name);
    formats.emplace_back(t.format->name);
    sources.emplace_back(dtype_name(t.source));
    shapes.push_back(static_cast<uint64_t>(t.rows));
    shapes.push_back(static_cast<uint64_t>(t.cols));
    linear.push_back(t.linear);
    for (int pass = 0; pass < 2; ++pass) {
      const Rotation r = pass < t.format->passes ? t.rotation[pass] : kNoRotation;
      const std::vector<uint32_t> numbers = rotation_numbers(r);
      rotations.insert(rotations.end(), numbers.begin(), numbers.end());
    }
  }
  const size_t n = tensors.size();
  writer.set(keys::kNames, GgufValue::texts(std::move(names)));
  writer.set(keys::kFormats, GgufValue::texts(std::move(formats)));
  writer.set(keys::kShapes, GgufValue::numbers(shapes));
  writer.set(keys::kSources, GgufValue::texts(std::move(sources)));
  writer.set(keys::kLinear, GgufValue::numbers(linear));
  writer.set(keys::kRotations, GgufValue::numbers(rotations));
  if (any_output) writer.set(keys::kOutputs, GgufValue::numbers(outputs));
  writer.set(keys::kErrors, GgufValue::numbers(std::vector<float>(n)));
  writer.set(keys::kChecksums, GgufValue::numbers(std::vector<uint64_t>(2 * n)));
}

void add_tensors(GgufWriter& writer, const std::vector<TensorPlan>& tensors) {
  for (const TensorPlan& t : tensors) {
    if (t.format->dense) {
      std::vector<uint64_t> dims = {static_cast<uint64_t>(t.cols)};
      if (t.site >= 0 || t.rows > 1) dims.push_back(static_cast<uint64_t>(t.rows));
      writer.add_tensor(t.name, ggml_type(t.format->dtype), std::move(dims));
      continue;
    }
    for (const ArraySpec& spec : array_specs(*t.format, t.rows, t.cols)) {
      writer.add_tensor(stored_name(t.name, spec.suffix), GgmlType::i8,
                        {spec.bytes / spec.rows, spec.rows});
    }
  }
}

// Room for the scales, which are known when the matrices are.
void add_scales(GgufWriter& writer, const Compressor& source) {
  std::vector<std::string> names = source.separately_scaled();
  if (names.empty()) return;
  size_t count = 0;
  for (const TensorPlan& t : source.tensors()) {
    const auto uses = std::count(names.begin(), names.end(), t.name);
    count += static_cast<size_t>(uses * t.cols);
  }
  writer.set(keys::kScaled, GgufValue::texts(std::move(names)));
  writer.set(keys::kScales, GgufValue::numbers(std::vector<float>(count)));
}

void patch_scales(GgufWriter& writer, Compressor& source) {
  std::vector<float> scales;
  for (const std::string& name : source.separately_scaled()) {
    const std::span<const float> columns = source.column_scales(name);
    scales.insert(scales.end(), columns.begin(), columns.end());
  }
  if (!scales.empty()) writer.patch(keys::kScales, GgufValue::numbers(scales));
}

void describe(GgufWriter& writer, const Compressor& source) {
  add_texts(writer, source);
  add_table(writer, source.tensors());
  add_scales(writer, source);
  add_tensors(writer, source.tensors());
}

std::vector<std::span<const std::byte>> stored_arrays(const Tensor& tensor) {
  if (tensor.format->dense) return {tensor.data};
  std::vector<std::span<const std::byte>> arrays;
  for (int pass = 0; pass < tensor.format->passes; ++pass) {
    for (const PassField& field : pass_fields(*tensor.format, pass, tensor.rows, tensor.cols))
      arrays.push_back(tensor.pass[pass].*field.array);
  }
  return arrays;
}

// Writes the arrays of one tensor and returns their checksum.
Checksum write_tensor(GgufWriter& writer, const TensorPlan& plan,
                      std::span<const std::span<const std::byte>> arrays) {
  const auto specs = array_specs(*plan.format, plan.rows, plan.cols);
  if (arrays.size() != specs.size()) {
    throw Error(ErrorCode::internal, plan.name, "arrays do not fit the format");
  }
  ChecksumStream sum;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const std::string name = stored_name(plan.name, specs[i].suffix);
    for (size_t at = 0; at < arrays[i].size(); at += kWriteChunk) {
      const auto part = arrays[i].subspan(at, std::min(kWriteChunk, arrays[i].size() - at));
      sum.update(part);
      writer.write(name, part, at);
    }
  }
  return sum.digest();
}

// The arrays of a tensor in one piece of memory of its size.
std::vector<std::span<const std::byte>> split(const TensorPlan& plan,
                                              std::span<const std::byte> content) {
  std::vector<std::span<const std::byte>> arrays;
  for (const ArraySpec& spec : array_specs(*plan.format, plan.rows, plan.cols)) {
    arrays.push_back(content.first(spec.bytes));
    content = content.subspan(spec.bytes);
  }
  return arrays;
}

struct Written {
  Checksum checksum;
  double nmse = 0;
  bool resumed = false;
};

// Encodes a tensor and writes it, or takes it from `resume` (may be null).
Written encode_and_write(GgufWriter& writer, Compressor& source, const TensorPlan& plan,
                         ResumeFile* resume) {
  const auto key = resume ? source.encoding_key(plan.name) : std::nullopt;
  if (key) {
    if (const auto record = resume->find(*key, plan.bytes())) {
      const auto arrays = split(plan, {record->content.data(), record->content.size()});
      return {write_tensor(writer, plan, arrays), record->nmse, true};
    }
  }
  const Tensor tensor = source.load(plan.name);
  const auto arrays = stored_arrays(tensor);
  const double nmse = source.nmse(plan.name);
  if (key) resume->add(*key, nmse, arrays);
  return {write_tensor(writer, plan, arrays), nmse, false};
}

// What WalshFile::open would refuse must not be written.
void check_rotations(const std::vector<TensorPlan>& tensors, uint64_t file_bytes) {
  OrthogonalWork work;
  for (const TensorPlan& plan : tensors) {
    for (int pass = 0; pass < plan.format->passes; ++pass)
      work.add(plan.rotation[pass], padded_cols(*plan.format, plan.cols));
    work.add(plan.output_rotation, plan.rows);
  }
  if (work.total() <= most_orthogonal_work(file_bytes)) return;
  throw Error(ErrorCode::usage, "--rotation qr",
              "the matrices of this model's rotations would take far longer to make than the file "
              "to read: use a smaller --block");
}

QuantizeSummary summarize(const Compressor& source, uint64_t file_bytes) {
  QuantizeSummary s;
  s.file_bytes = file_bytes;
  for (const TensorPlan& t : source.tensors()) {
    const uint64_t weights = static_cast<uint64_t>(t.rows) * static_cast<uint64_t>(t.cols);
    s.all_weights += weights;
    if (!t.linear) continue;
    s.linear_weights += weights;
    s.linear_bytes += t.bytes();
  }
  return s;
}

}  // namespace

QuantizeSummary predict(const Compressor& source) {
  GgufWriter writer;
  describe(writer, source);
  check_rotations(source.tensors(), writer.file_size());
  return summarize(source, writer.file_size());
}

QuantizeSummary quantize_to_file(Compressor& source, const std::string& path,
                                 const std::function<void(const QuantizeProgress&)>& progress,
                                 const NoteFunction& note) {
  source.settle_formats();
  GgufWriter writer;
  describe(writer, source);
  check_rotations(source.tensors(), writer.file_size());
  writer.open(path);
  const auto& tensors = source.tensors();
  std::unique_ptr<ResumeFile> resume;
  for (const TensorPlan& plan : tensors) {
    if (plan.format->kind == CodeKind::trellis && !resume) {
      resume = std::make_unique<ResumeFile>(path, note);
    }
  }
  std::vector<float> errors(tensors.size());
  std::vector<MissedBound> missed;
  std::vector<uint64_t> checksums(2 * tensors.size());
  RunTime time(source);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorPlan& plan = tensors[i];
    source.measure(plan);
    time.measured(plan);
    const Written written = encode_and_write(writer, source, plan, resume.get());
    checksums[2 * i] = written.checksum.low;
    checksums[2 * i + 1] = written.checksum.high;
    errors[i] = static_cast<float>(written.nmse);
    if (!source.recipe().calibration && misses_bound(*plan.format, written.nmse))
      missed.push_back({plan.name, plan.format, written.nmse});
    source.release(plan.name);
    time.written(plan, written.resumed);
    if (!progress) continue;
    progress({i + 1, tensors.size(), &plan, written.nmse, written.resumed, time.seconds_left()});
  }
  writer.patch(keys::kErrors, GgufValue::numbers(errors));
  writer.patch(keys::kChecksums, GgufValue::numbers(checksums));
  patch_scales(writer, source);
  writer.seal(keys::kHeader);
  writer.commit();
  if (resume) resume->remove();
  if (note && !source.uncalibrated().empty()) {
    note("--calibrate: " + std::to_string(source.uncalibrated().size()) +
         " matrices of experts are rounded without the text, which hardly reached them");
  }
  QuantizeSummary summary = summarize(source, writer.file_size());
  summary.missed = std::move(missed);
  return summary;
}

}  // namespace walsh
