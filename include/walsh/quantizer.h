// Compresses a Hugging Face checkpoint into a walsh file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace walsh {

// Names and values are those of the command's flags (`walsh quantize --help`).
struct CompressOptions {
  std::string type = "tq4";            // of all linear weights; see formats()
  std::string embed_type, head_type;   // empty: q8_0; in a folder as the checkpoint has them
  std::vector<std::string> overrides;  // "re:PATTERN=TYPE" or "NAME=TYPE", the first match wins
  std::vector<std::string> ignore;     // "re:PATTERN" or "NAME": keep the checkpoint's type
  std::string rotation = "hadamard";   // "hadamard", "qr", "none"
  // "input" rotates activations at run time, "residual" folds the rotation into the weights, "both"
  // does both.
  std::string rotate = "input";
  int block = 0;      // rotation block, 32 to 1024; 0: the type's default
  bool signs = true;  // random signs before the Hadamard transform
  uint32_t seed = 42;
  bool balance = true;      // channel balancing before the rotation
  bool fast = false;        // search scales from one starting value instead of ten
  bool shape_gain = false;  // norm-preserving scales instead of least squares
  // Names a text to measure activations on, or is "self": the model writes one; quantize() only.
  std::string calibrate;
  int64_t calibrate_tokens = 0;  // of it; 0: 98304, or what it has; 32768 of "self"
  std::string curvature;         // folder of python -m walsh.curvature on that text; may be empty
  // Every tensor gets a type that is chosen by measuring (docs/allocation.md): for so many bits per
  // weight of the linear layers, or bytes of the file; `type` then is not used. quantize() only.
  double bits_per_weight = 0;
  uint64_t file_bytes = 0;
  std::string allocate_text;  // path of a text to measure on; empty: the model generates one
  std::string output_format = "gguf";  // "hf": a folder that transformers loads; quantize() only
  std::string recipe;  // path of a saved recipe, which replaces everything above except calibrate
};

struct CompressReport {
  uint64_t file_bytes = 0;
  double bits_per_weight = 0;  // of the linear weights, scales included
  // Notes say what is worth knowing but no error, such as tensors whose error exceeds their type's
  // bound.
  std::vector<std::string> notes;
};

// This is called after each tensor with the number done and the total; returning false stops.
using CompressProgress = std::function<bool(size_t done, size_t count)>;

// Compresses the checkpoint `model` (a folder, a GGUF file of llama.cpp, or the name of a model in
// the cache of Hugging Face's tools, such as ORG/NAME) into the file `out`, which appears whole or
// not at all, or into a new folder of this name (output_format). threads = 0: one per core. `out`
// is checked before any work and must not be one of the input files. Throws Error: usage,
// bad_input, io, limit, interrupted (also through walsh/stop.h).
CompressReport quantize(const std::string& model, const std::string& out,
                        const CompressOptions& options, int threads = 0,
                        const CompressProgress& progress = {});

struct FormatSummary {
  std::string name;
  double bits_per_weight = 0;  // for long rows
  double bound = 0;            // NMSE on N(0,1) that the format must reach; 0: none
  std::string note;
};

// Returns all weight formats.
std::vector<FormatSummary> formats();

struct TensorSummary {
  std::string name, type;
  std::string source_type;     // in the checkpoint: "bf16"
  int64_t rows = 0, cols = 0;  // a vector has one row
  uint64_t bytes = 0;
  double nmse = 0;      // of a coded tensor, in the rotated basis
  bool linear = false;  // counts towards bits_per_weight
  std::string checksum;
};

struct FileSummary {
  uint64_t bytes = 0;          // of the file
  std::string producer;        // the version of walsh that wrote it
  std::string recipe;          // JSON: everything that determines the bytes
  double bits_per_weight = 0;  // of the linear weights, scales included
  std::vector<TensorSummary> tensors;
};

// Describes a walsh file, or a Hugging Face folder (or its name, as for quantize) with its codes;
// for folders without source types, errors and checksums, and `bytes` is the size of the tensors.
// With `check`, every tensor of a file is read and its checksum verified. Throws bad_input for a
// file that is damaged or not walsh's.
FileSummary inspect(const std::string& model, bool check = false);

}  // namespace walsh
