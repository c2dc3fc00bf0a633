// Prepares calibration for a compressor from the path of a text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "base/thread_pool.h"
#include "codec/feedback/input_statistics.h"
#include "quantize/pipeline/compressor.h"
#include "quantize/recipe/recipe.h"

namespace walsh {

inline constexpr std::string_view kOwnText = "self";     // it stands for the path of a text
inline constexpr const char* kOwnTextFile = "self.txt";  // a folder of curvature may hold it
inline constexpr int64_t kOwnTokens = 32768;  // a model writes this many tokens by default

struct GgufContent;

struct CalibrationRequest {
  // This is the path of a text. kOwnText means that the model writes it, and an empty path that
  // nothing is calibrated.
  std::string text;
  // This many tokens are used; 0 means kOwnTokens, or what calibrate/text_windows.h says.
  int64_t tokens = 0;
  std::function<void()> check;  // it is called now and then while measuring; it may throw to stop
  std::shared_ptr<const std::string> content;  // it is the text, once it was read
  // Names a folder of CurvatureFiles; if it is empty, errors at all outputs count alike.
  std::string curvature = {};
  Device device = {};  // it runs the model
  // This is called before each token that the model writes, with their numbers so far and in all.
  std::function<void(int64_t, int64_t)> writing = {};
  std::shared_ptr<const std::vector<int32_t>> own = {};  // the model wrote these whole windows
  // This is the header of `content` if that is a file of llama-imatrix.
  std::shared_ptr<const GgufContent> imatrix = {};

  // Returns the path of the text; it is empty if there is none to read or if the model writes the
  // text.
  std::string file() const { return text == kOwnText ? std::string() : text; }
  // Reads the text, or lets the checkpoint `folder` write it, whose unquantized model is sampled at
  // temperature 1. With kOwnText and a curvature, the text is the one that the curvature's folder
  // holds. Callers that use the request more than once must do so first, because a pipe can be read
  // only once. Throws io, limit, interrupted, bad_input, usage.
  void read(const std::string& folder, ThreadPool& pool);
};

struct PreparedCalibration {
  CalibrationText description;  // Recipe::calibration takes it
  std::shared_ptr<InputStatistics> statistics;
  std::shared_ptr<const CurvatureFiles> curvature;  // null means that there are none
};

// Prepares for recipes that rotate as `recipe` does. Reads the text and the checkpoint's tokenizer;
// nothing is measured until it is asked for. `pool` outlives the result. Throws usage if the text
// is too short or the model cannot be rotated so, bad_input, also if the curvature is that of
// another text, and io.
PreparedCalibration prepare_calibration(const std::string& folder, const Recipe& recipe,
                                        const CalibrationRequest& request, ThreadPool& pool);

// Opens a compressor as open_compressor does (quantize/pipeline/open.h), and calibrates it if the
// request has a text. The model's other files must be valid (check_texts, api/load.h).
std::unique_ptr<Compressor> open_calibrated(const std::string& folder, Recipe recipe,
                                            const CalibrationRequest& request, ThreadPool& pool);

}  // namespace walsh
