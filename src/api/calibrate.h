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

inline constexpr std::string_view kOwnText = "self";     // as the path of a text
inline constexpr const char* kOwnTextFile = "self.txt";  // a folder of curvature may hold it
inline constexpr int64_t kOwnTokens = 32768;             // a model writes so many by default

struct GgufContent;

struct CalibrationRequest {
  std::string text;             // path; kOwnText: the model writes it; empty: no calibration
  int64_t tokens = 0;           // 0: kOwnTokens, or as calibrate/text_windows.h
  std::function<void()> check;  // called now and then while measuring; may throw to stop
  std::shared_ptr<const std::string> content;  // the text, once it was read
  std::string curvature = {};  // folder of CurvatureFiles; empty: errors at outputs count alike
  Device device = {};          // it runs the model
  // This is called before each token that the model writes, with their numbers so far and in all.
  std::function<void(int64_t, int64_t)> writing = {};
  std::shared_ptr<const std::vector<int32_t>> own = {};  // whole windows that the model wrote
  // This is the header of `content` if that is a file of llama-imatrix.
  std::shared_ptr<const GgufContent> imatrix = {};

  // Returns the path of the text; empty if there is none to read, or the model writes it.
  std::string file() const { return text == kOwnText ? std::string() : text; }
  // Reads the text, or lets the checkpoint `folder` write it: windows sampled from the unquantized
  // model at temperature 1. With kOwnText and a curvature, the text is the one that the curvature's
  // folder holds. Callers that use the request more than once must do so first, because a pipe can
  // be read only once. Throws io, limit, interrupted, bad_input, usage.
  void read(const std::string& folder, ThreadPool& pool);
};

struct PreparedCalibration {
  CalibrationText description;  // for Recipe::calibration
  std::shared_ptr<InputStatistics> statistics;
  std::shared_ptr<const CurvatureFiles> curvature;  // null: none
};

// Prepares for recipes that rotate as `recipe` does. Reads the text and the checkpoint's tokenizer;
// nothing is measured until it is asked for. `pool` outlives the result. Throws usage if the text
// is too short or the model cannot be rotated so, bad_input (also for a curvature of another text)
// or io.
PreparedCalibration prepare_calibration(const std::string& folder, const Recipe& recipe,
                                        const CalibrationRequest& request, ThreadPool& pool);

// Does what open_compressor does (quantize/pipeline/open.h), calibrated if the request has a text,
// for a model whose other files are valid (check_texts, api/load.h).
std::unique_ptr<Compressor> open_calibrated(const std::string& folder, Recipe recipe,
                                            const CalibrationRequest& request, ThreadPool& pool);

}  // namespace walsh
