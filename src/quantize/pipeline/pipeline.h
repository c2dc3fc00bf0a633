// Runs checkpoint -> rotate -> quantize -> pack -> file, one tensor at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/note.h"
#include "quantize/pipeline/compressor.h"
#include "quantize/pipeline/model_output.h"

namespace walsh {

struct QuantizeProgress {
  size_t index = 0, count = 0;  // of the tensor just written
  const TensorPlan* tensor = nullptr;
  double nmse = 0;
  bool resumed = false;      // encoded by an earlier run that was interrupted
  double seconds_left = -1;  // estimated; negative if nothing is known yet
};

// This tensor's error is more than a little above the bound of its format (codec/encode/bounds.h).
struct MissedBound {
  std::string tensor;
  const Format* format = nullptr;
  double nmse = 0;
};

struct QuantizeSummary {
  uint64_t file_bytes = 0;      // of the whole file, or of the folder's weights
  uint64_t linear_weights = 0;  // weights in linear layers
  uint64_t linear_bytes = 0;    // their storage
  uint64_t all_weights = 0;
  std::vector<MissedBound> missed;  // in file order

  double bits_per_weight() const {
    return linear_weights
               ? 8.0 * static_cast<double>(linear_bytes) / static_cast<double>(linear_weights)
               : 0.0;
  }
};

// Returns what quantize_to_file would write, without any work (--dry-run).
QuantizeSummary predict(Compressor& source, const OutputOptions& options = {});

// Writes the compressed checkpoint as a walsh file at `path`, or as the folder that the options ask
// for, atomically: it appears whole or not at all. A folder must not exist (usage). Peak memory is
// that of the largest tensor in float rows of one work item per thread plus its codes, or of two
// tensors that follow each other where a GPU searches the tiles of trellis codes
// (Compressor::begin). `progress` is called after each tensor and may throw Error(interrupted) to
// stop. What was encoded in a trellis format until then stays in a file beside `path`
// (quantize/pipeline/resume.h), and the next call continues with it; the bytes are those of a run
// without a stop. If that file cannot be written, `note` is told and the run goes on. Once the
// result is in place nothing fails.
QuantizeSummary quantize_to_file(Compressor& source, const std::string& path,
                                 const std::function<void(const QuantizeProgress&)>& progress,
                                 const NoteFunction& note = {}, const OutputOptions& options = {});

}  // namespace walsh
