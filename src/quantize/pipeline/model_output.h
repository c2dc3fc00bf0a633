// Declares the output of compression, which is a walsh file or a Hugging Face folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checksum.h"
#include "quantize/pipeline/compressor.h"

namespace walsh {

enum class OutputKind : uint8_t {
  file,   // it is a GGUF container, docs/formats/file.md
  folder  // safetensors beside config.json, docs/formats/folder.md
};

struct OutputOptions {
  OutputKind kind = OutputKind::file;
  uint64_t shard_bytes = 5'000'000'000;  // a folder's weights are divided into files of this size
};
// Parses "gguf" or "hf". Throws usage for anything else.
OutputKind parse_output_kind(std::string_view name);

// Holds the results that are known when all tensors are written; element i belongs to tensor i.
struct WrittenTensors {
  std::vector<float> errors;
  std::vector<Checksum> checksums;
};

// Writes the compressed model. Calls must come in the order of the declarations. Without commit()
// nothing is left behind.
class ModelOutput {
 public:
  virtual ~ModelOutput() = default;
  // Returns the size of everything that will be written, which is known in advance. A folder's
  // small files are not counted.
  virtual uint64_t bytes() const = 0;
  virtual void open(const std::string& path) = 0;
  // Writes bytes of array `array` of the tensor's array_specs, from `offset` on.
  virtual void write(const TensorPlan& plan, size_t array, std::span<const std::byte> bytes,
                     uint64_t offset) = 0;
  virtual void commit(const WrittenTensors& written) = 0;
};

// Makes the output for a compressor whose formats are settled. Throws usage for a recipe whose
// model such an output cannot hold.
std::unique_ptr<ModelOutput> make_output(Compressor& source, const OutputOptions& options);
std::unique_ptr<ModelOutput> make_file_output(Compressor& source);
std::unique_ptr<ModelOutput> make_folder_output(Compressor& source, uint64_t shard_bytes);

}  // namespace walsh
