// Runs the steps from checkpoint to file for one tensor at a time, which rotate, quantize, pack and
// write it.
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
  size_t index = 0, count = 0;  // they belong to the tensor just written
  const TensorPlan* tensor = nullptr;
  double nmse = 0;
  bool resumed = false;      // an earlier run, which was interrupted, has encoded it
  double seconds_left = -1;  // it is estimated; a negative number means that nothing is known yet
};

// Names a tensor whose error is more than a little above the bound of its format
// (codec/encode/bounds.h).
struct MissedBound {
  std::string tensor;
  const Format* format = nullptr;
  double nmse = 0;
};

struct QuantizeSummary {
  uint64_t file_bytes = 0;      // the whole file takes this many bytes, or the folder's weights
  uint64_t linear_weights = 0;  // linear layers have this many weights
  uint64_t linear_bytes = 0;    // these take this many bytes
  uint64_t all_weights = 0;
  std::vector<MissedBound> missed;  // they are in file order

  double bits_per_weight() const {
    return linear_weights
               ? 8.0 * static_cast<double>(linear_bytes) / static_cast<double>(linear_weights)
               : 0.0;
  }
};

// Returns the summary of what quantize_to_file would write, without any work (--dry-run).
QuantizeSummary predict(Compressor& source, const OutputOptions& options = {});

// Writes the compressed checkpoint as a walsh file at `path`, or as the folder that the options ask
// for. It appears whole or not at all. A folder must not exist (usage). Peak memory is that of the
// largest tensor in float rows of one work item per thread plus its codes, or of two tensors that
// follow each other where a GPU searches the tiles of trellis codes (Compressor::begin). `progress`
// is called after each tensor and may throw Error(interrupted) to stop. Tensors that were encoded
// in a trellis format until then stay in a file beside `path` (quantize/pipeline/resume.h), and the
// next call continues with them; the bytes are those of a run without a stop. If that file cannot
// be written, `note` is told and the run goes on. Once the result is in place nothing fails.
QuantizeSummary quantize_to_file(Compressor& source, const std::string& path,
                                 const std::function<void(const QuantizeProgress&)>& progress,
                                 const NoteFunction& note = {}, const OutputOptions& options = {});

}  // namespace walsh
