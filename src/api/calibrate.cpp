#include "api/calibrate.h"

#include <algorithm>
#include <filesystem>

#include "api/load.h"
#include "arch/plan.h"
#include "calibrate/layer_statistics.h"
#include "calibrate/text_windows.h"
#include "import/gguf_checkpoint.h"
#include "io/checksum.h"
#include "quantize/pipeline/open.h"
#include "text/text_file.h"
#include "walsh/error.h"

namespace walsh {

void CalibrationRequest::read() {
  if (text.empty() || content) return;
  content = std::make_shared<const std::string>(read_utf8_text(text));
}

PreparedCalibration prepare_calibration(const std::string& folder, const Recipe& recipe,
                                        const CalibrationRequest& request, ThreadPool& pool) {
  CalibrationRequest known = request;
  known.read();
  const std::string& text = *known.content;
  const CheckpointSource source = CheckpointSource::open(folder);
  const ModelConfig config = parse_config(source.config_json(), folder + ": config.json");
  const Tokenizer tokenizer = read_tokenizer(source);
  const int64_t window = std::min(kCalibrationWindow, config.max_positions);
  auto windows = calibration_windows(tokenizer.encode(text, false), request.tokens, window,
                                     tokenizer.added_bos().value_or(-1));
  PreparedCalibration result;
  result.description.checksum = checksum(std::as_bytes(std::span(text))).hex();
  result.description.tokens = window * static_cast<int64_t>(windows.size());
  result.description.window = window;
  if (!request.curvature.empty()) {
    result.curvature = std::make_shared<const CurvatureFiles>(request.curvature);
    result.curvature->check_text(result.description.checksum);
    result.description.curvature = result.curvature->checksum();
  }
  std::optional<Rotation> fold;
  if (recipe.rotate == RotateAt::residual) fold = fold_rotation(recipe);
  result.statistics =
      std::make_shared<LayerStatistics>(folder, std::move(windows), pool, request.check, fold);
  return result;
}

std::unique_ptr<Compressor> open_calibrated(const std::string& folder, Recipe recipe,
                                            const CalibrationRequest& request, ThreadPool& pool) {
  // If this is no checkpoint, open_compressor has the better message.
  std::error_code unreadable;
  const bool is_model =
      std::filesystem::is_directory(folder, unreadable) || is_foreign_gguf(folder);
  if (request.text.empty() || !is_model) {
    auto compressor = open_compressor(folder, recipe, pool);
    check_texts(*compressor);
    return compressor;
  }
  PreparedCalibration calibration = prepare_calibration(folder, recipe, request, pool);
  recipe.calibration = calibration.description;
  auto compressor = open_compressor(folder, recipe, pool);
  check_texts(*compressor);
  compressor->calibrate(std::move(calibration.statistics));
  compressor->use_curvature(std::move(calibration.curvature));
  return compressor;
}

}  // namespace walsh
