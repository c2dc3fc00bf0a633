// Reads the measurements of a checkpoint by `python -m walsh.curvature`, which are the second
// moments of the gradients of its loss at the outputs of its matrices (docs/calibration.md). The
// folder has a safetensors file per layer; a tensor has the upper triangle of the mean of g g^T,
// row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codec/feedback/input_statistics.h"
#include "io/checksum.h"
#include "io/mapped_file.h"
#include "weights/checkpoint_source.h"

namespace walsh {

class CurvatureFiles {
 public:
  // Reads the headers. Throws io or bad_input for a folder that has no such files, or unfinished,
  // damaged or contradicting ones.
  explicit CurvatureFiles(const std::string& folder);

  const std::string& path() const { return folder_; }
  // Throws bad_input unless the measured text has this checksum (CalibrationText).
  void check_text(const std::string& checksum) const;
  // Returns the checksum of everything measured.
  std::string checksum() const;
  // Returns the checksum of the measurements for a matrix of the checkpoint.
  Checksum checksum(const CheckpointSource& checkpoint, const std::string& matrix) const;

  // Returns the gradients at the `rows` outputs of a matrix, or nothing if no token reached it.
  // Throws bad_input naming the tensor if it was not measured, with other weights or another shape,
  // is damaged or not finite.
  std::optional<InputMoments> moments(const CheckpointSource& checkpoint, const std::string& matrix,
                                      int64_t rows) const;

 private:
  struct Measured {
    std::string where;  // messages name the tensor by this
    int64_t rows = 0, tokens = 0;
    // The first is that of the stored weights, the second that of the values.
    std::string weights, checksum;
    std::span<const std::byte> values;  // they are f32; there are none without tokens
  };
  void open_layer(const std::string& path);
  const Measured& find(const CheckpointSource& checkpoint, const std::string& matrix) const;

  std::string folder_, text_;
  std::vector<MappedFile> files_;
  std::map<std::string, Measured> matrices_;
};

}  // namespace walsh
