// Compresses a Hugging Face checkpoint into a walsh file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace walsh {

// The fields have the names and the values of the command's flags (`walsh quantize --help`).
struct CompressOptions {
  std::string type = "tq4";  // all linear weights get this type; see formats()
  // An empty type means q8_0 or, in an output folder, the checkpoint's own type.
  std::string embed_type, head_type;
  std::vector<std::string> overrides;  // "re:PATTERN=TYPE" or "NAME=TYPE", the first match wins
  // These tensors ("re:PATTERN" or "NAME") keep the checkpoint's type.
  std::vector<std::string> ignore;
  std::string rotation = "hadamard";  // it is "hadamard", "qr" or "none"
  // "input" rotates activations at run time, "residual" folds the rotation into the weights, "both"
  // does both.
  std::string rotate = "input";
  int block = 0;      // the rotation's block is 32 to 1024; 0 means the type's default
  bool signs = true;  // the Hadamard transform follows random signs
  uint32_t seed = 42;
  bool balance = true;      // channels are balanced before the rotation
  bool fast = false;        // the search for scales starts from one value instead of ten
  bool shape_gain = false;  // scales preserve the norm instead of minimizing squares
  // This is the path of a text on which activations are measured, or "self", which makes the model
  // write one. Only quantize() uses it.
  std::string calibrate;
  // This many tokens of the text are read. 0 means 98304, or the whole of a shorter text; the model
  // itself writes 32768.
  int64_t calibrate_tokens = 0;
  // Names the folder that `python -m walsh.curvature` made from that text; it may be empty.
  std::string curvature;
  // If one of these two is set, every tensor gets a type that is chosen by measuring
  // (docs/allocation.md), so that the linear layers have this many bits per weight or the file has
  // this many bytes. `type` is not used then. Only quantize() uses them.
  double bits_per_weight = 0;
  uint64_t file_bytes = 0;
  // The types are chosen on the text at this path; if it is empty, the model generates a text.
  std::string allocate_text;
  // With "hf" the output is a folder that transformers loads. Only quantize() uses it.
  std::string output_format = "gguf";
  // A saved recipe at this path replaces everything above except `calibrate`.
  std::string recipe;
};

struct CompressReport {
  uint64_t file_bytes = 0;
  double bits_per_weight = 0;  // this is the mean of the linear weights and includes scales
  // Each note says something that is worth knowing and no error, such as that a tensor's error
  // exceeds its type's bound.
  std::vector<std::string> notes;
};

// This is called after each tensor with the number done and the total. It stops the work by
// returning false.
using CompressProgress = std::function<bool(size_t done, size_t count)>;

// Compresses the checkpoint `model` (a folder, a GGUF file of llama.cpp, or the name of a model in
// the cache of Hugging Face's tools, such as ORG/NAME) into the file `out`, which appears whole or
// not at all, or into a new folder of this name (output_format). With threads = 0 every core has
// one thread. `out` is checked before any work and must not be one of the input files. Throws Error
// with the codes usage, bad_input, io, limit and interrupted (also through walsh/stop.h).
CompressReport quantize(const std::string& model, const std::string& out,
                        const CompressOptions& options, int threads = 0,
                        const CompressProgress& progress = {});

struct FormatSummary {
  std::string name;
  double bits_per_weight = 0;  // this holds for long rows
  // Bounds the NMSE that the format must reach on weights from N(0,1); 0 means that it has no
  // bound.
  double bound = 0;
  std::string note;
};

// Returns all weight formats.
std::vector<FormatSummary> formats();

struct TensorSummary {
  std::string name, type;
  std::string source_type;     // the checkpoint stores it in this type, such as "bf16"
  int64_t rows = 0, cols = 0;  // a vector has one row
  uint64_t bytes = 0;
  double nmse = 0;      // only a coded tensor has it; it is measured in the rotated basis
  bool linear = false;  // it counts towards bits_per_weight
  std::string checksum;
};

struct FileSummary {
  uint64_t bytes = 0;          // the file, or all tensors of a folder, take this many bytes
  std::string producer;        // this version of walsh wrote the file
  std::string recipe;          // this JSON holds everything that determines the bytes
  double bits_per_weight = 0;  // this is the mean of the linear weights and includes scales
  std::vector<TensorSummary> tensors;
};

// Describes a walsh file, or a Hugging Face folder with codes, which may also be named as for
// quantize(). A folder stores no source types, errors and checksums, so these stay empty, and
// `bytes` is the size of its tensors. With `check`, every tensor of a file is read and its checksum
// verified. Throws bad_input for a file that is damaged or not walsh's.
FileSummary inspect(const std::string& model, bool check = false);

}  // namespace walsh
