// Prepares calibration for a compressor from the path of a text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "codec/feedback/input_statistics.h"
#include "quantize/pipeline/compressor.h"
#include "quantize/recipe/recipe.h"

namespace walsh {

struct CalibrationRequest {
  std::string text;             // path; empty: no calibration
  int64_t tokens = 0;           // 0: as calibrate/text_windows.h
  std::function<void()> check;  // called now and then while measuring; may throw to stop
  std::shared_ptr<const std::string> content;  // of the text, once it was read
  std::string curvature = {};  // folder of CurvatureFiles; empty: errors at outputs count alike

  // Reads the text, if there is one. Callers that use the request more than once must do so first,
  // because a pipe can be read only once. Throws io, limit, interrupted.
  void read();
};

struct PreparedCalibration {
  CalibrationText description;  // for Recipe::calibration
  std::shared_ptr<InputStatistics> statistics;
  std::shared_ptr<const CurvatureFiles> curvature;  // null: none
};

// For recipes that rotate as `recipe` does. Reads the text and the checkpoint's tokenizer; nothing
// is measured until it is asked for. `pool` outlives the result. Throws usage if the text is too
// short or the model cannot be rotated so, bad_input (also for a curvature of another text) or io.
PreparedCalibration prepare_calibration(const std::string& folder, const Recipe& recipe,
                                        const CalibrationRequest& request, ThreadPool& pool);

// open_compressor (quantize/pipeline/open.h), calibrated if the request has a text, for a model
// whose other files are valid (check_texts, api/load.h).
std::unique_ptr<Compressor> open_calibrated(const std::string& folder, Recipe recipe,
                                            const CalibrationRequest& request, ThreadPool& pool);

}  // namespace walsh
