#include "quantize/pipeline.h"

#include <filesystem>

#include "io/checksum.h"
#include "io/gguf_writer.h"
#include "io/json.h"
#include "quantize/walsh_file.h"
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

// The last component of the folder's path.
std::string model_name(const std::string& folder) {
  const auto path = std::filesystem::absolute(folder).lexically_normal();
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

void add_texts(GgufWriter& writer, const Compressor& source) {
  const Json config = parse_json(source.config_json(), source.path() + "/config.json");
  const auto model_type = find_string(config, "model_type", source.path() + "/config.json");
  writer.set("general.architecture", GgufValue::text(model_type.value_or("unknown")));
  writer.set("general.name", GgufValue::text(model_name(source.path())));
  writer.set(keys::kVersion, GgufValue::number(uint32_t{kFileFormatVersion}));
  writer.set(keys::kProducer, GgufValue::text(std::string("walsh ") + kVersion));
  writer.set(keys::kRecipe, GgufValue::text(recipe_json(source.recipe())));
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
  std::vector<uint32_t> rotations;
  for (const TensorPlan& t : tensors) {
    names.push_back(t.name);
    formats.emplace_back(t.format->name);
    sources.emplace_back(dtype_name(t.source));
    shapes.push_back(static_cast<uint64_t>(t.rows));
    shapes.push_back(static_cast<uint64_t>(t.cols));
    linear.push_back(t.linear);
    for (int pass = 0; pass < 2; ++pass) {
      const Rotation r =
          pass < t.format->passes ? t.rotation[pass] : Rotation{RotationKind::none, 32, 0, false};
      rotations.insert(rotations.end(), {static_cast<uint32_t>(r.kind),
                                         static_cast<uint32_t>(r.block), r.seed, r.signs});
    }
  }
  const size_t n = tensors.size();
  writer.set(keys::kNames, GgufValue::texts(std::move(names)));
  writer.set(keys::kFormats, GgufValue::texts(std::move(formats)));
  writer.set(keys::kShapes, GgufValue::numbers(shapes));
  writer.set(keys::kSources, GgufValue::texts(std::move(sources)));
  writer.set(keys::kLinear, GgufValue::numbers(linear));
  writer.set(keys::kRotations, GgufValue::numbers(rotations));
  writer.set(keys::kErrors, GgufValue::numbers(std::vector<float>(n)));
  writer.set(keys::kChecksums, GgufValue::numbers(std::vector<uint64_t>(2 * n)));
}

void add_tensors(GgufWriter& writer, const std::vector<TensorPlan>& tensors) {
  for (const TensorPlan& t : tensors) {
    const auto rows = static_cast<uint64_t>(t.rows);
    if (t.format->dense) {
      std::vector<uint64_t> dims = {static_cast<uint64_t>(t.cols)};
      if (t.site >= 0) dims.push_back(rows);
      writer.add_tensor(t.name, ggml_type(t.format->dtype), std::move(dims));
      continue;
    }
    for (const ArraySpec& spec : array_specs(*t.format, t.rows, t.cols)) {
      writer.add_tensor(stored_name(t.name, spec.suffix), GgmlType::i8, {spec.bytes / rows, rows});
    }
  }
}

void describe(GgufWriter& writer, const Compressor& source) {
  add_texts(writer, source);
  add_table(writer, source.tensors());
  add_tensors(writer, source.tensors());
}

std::vector<std::span<const std::byte>> stored_arrays(const Tensor& tensor) {
  if (tensor.format->dense) return {tensor.data};
  std::vector<std::span<const std::byte>> arrays;
  for (int pass = 0; pass < tensor.format->passes; ++pass) {
    const PassArrays& p = tensor.pass[pass];
    for (const auto& array : {p.codes, p.scales, p.offsets, p.sub_scales}) {
      if (!array.empty()) arrays.push_back(array);
    }
  }
  return arrays;
}

// Writes the arrays of one tensor and returns their checksum.
Checksum write_tensor(GgufWriter& writer, const TensorPlan& plan, const Tensor& tensor) {
  const auto specs = array_specs(*plan.format, plan.rows, plan.cols);
  const auto arrays = stored_arrays(tensor);
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
  return summarize(source, writer.file_size());
}

QuantizeSummary quantize_to_file(Compressor& source, const std::string& path,
                                 const std::function<void(const QuantizeProgress&)>& progress) {
  GgufWriter writer;
  describe(writer, source);
  writer.open(path);
  const auto& tensors = source.tensors();
  std::vector<float> errors(tensors.size());
  std::vector<uint64_t> checksums(2 * tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorPlan& plan = tensors[i];
    {
      const Tensor tensor = source.load(plan.name);
      const Checksum sum = write_tensor(writer, plan, tensor);
      checksums[2 * i] = sum.low;
      checksums[2 * i + 1] = sum.high;
    }
    source.release(plan.name);
    errors[i] = static_cast<float>(source.nmse(plan.name));
    if (progress) progress({i + 1, tensors.size(), &plan, source.nmse(plan.name)});
  }
  writer.patch(keys::kErrors, GgufValue::numbers(errors));
  writer.patch(keys::kChecksums, GgufValue::numbers(checksums));
  writer.commit();
  return summarize(source, writer.file_size());
}

}  // namespace walsh
