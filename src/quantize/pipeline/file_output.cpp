// Writes a compressed checkpoint as a walsh file.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "io/gguf_writer.h"
#include "io/json.h"
#include "io/printable.h"
#include "io/sentence_files.h"
#include "quantize/pipeline/model_output.h"
#include "walsh/error.h"
#include "walsh/version.h"
#include "weights/walsh_file.h"

namespace walsh {
namespace {

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

// Returns the folder's name, which may be any bytes, as the UTF-8 that strings of a GGUF file are.
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
  // This is not the family's name, because programs that know the family would take the tensors for
  // theirs.
  writer.set("general.architecture", GgufValue::text("walsh"));
  writer.set("general.name", GgufValue::text(model_name(source.path())));
  writer.set(keys::kVersion, GgufValue::number(uint32_t{kFileFormatVersion}));
  writer.set(keys::kHeader, GgufValue::numbers(std::vector<uint64_t>(2)));
  writer.set(keys::kFamily, GgufValue::text(model_type.value_or("unknown")));
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
  const std::string embedding = embedding_of_folder(source.path());
  if (!embedding.empty()) text(keys::kEmbedding, embedding);
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

// Leaves room for the scales, whose values are known after the matrices are encoded.
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

class FileOutput : public ModelOutput {
 public:
  explicit FileOutput(Compressor& source) : source_(source) { describe(writer_, source); }
  uint64_t bytes() const override { return writer_.file_size(); }
  void open(const std::string& path) override { writer_.open(path); }

  void write(const TensorPlan& plan, size_t array, std::span<const std::byte> bytes,
             uint64_t offset) override {
    const ArraySpec spec = array_specs(*plan.format, plan.rows, plan.cols).at(array);
    writer_.write(stored_name(plan.name, spec.suffix), bytes, offset);
  }

  void commit(const WrittenTensors& written) override {
    std::vector<uint64_t> checksums;
    for (const Checksum& sum : written.checksums) {
      checksums.push_back(sum.low);
      checksums.push_back(sum.high);
    }
    writer_.patch(keys::kErrors, GgufValue::numbers(written.errors));
    writer_.patch(keys::kChecksums, GgufValue::numbers(checksums));
    patch_scales(writer_, source_);
    writer_.seal(keys::kHeader);
    writer_.commit();
  }

 private:
  Compressor& source_;
  GgufWriter writer_;
};

}  // namespace

std::unique_ptr<ModelOutput> make_file_output(Compressor& source) {
  return std::make_unique<FileOutput>(source);
}

}  // namespace walsh
