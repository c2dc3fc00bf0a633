#include "api/calibrate.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "allocate/self_text.h"
#include "api/load.h"
#include "arch/plan.h"
#include "calibrate/imatrix_statistics.h"
#include "calibrate/layer_statistics.h"
#include "calibrate/text_windows.h"
#include "import/gguf_checkpoint.h"
#include "io/checksum.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "quantize/pipeline/open.h"
#include "text/text_file.h"
#include "walsh/error.h"
#include "weights/open.h"

namespace walsh {
namespace {

bool is_checkpoint(const std::string& path) {
  std::error_code unreadable;
  return std::filesystem::is_directory(path, unreadable) || is_foreign_gguf(path);
}

int64_t window_of(const ModelConfig& config) {
  return std::min(kCalibrationWindow, config.max_positions);
}

std::vector<int32_t> written_by_itself(const std::string& folder, const CalibrationRequest& request,
                                       ThreadPool& pool) {
  CheckpointSource source = CheckpointSource::open(folder);
  const ModelConfig config = read_config(source);
  SelfTextOptions options;
  options.ctx = window_of(config);
  const int64_t tokens = request.tokens == 0 ? kOwnTokens : request.tokens;
  options.windows = std::max<int64_t>(1, tokens / options.ctx);
  options.bos = read_tokenizer(source).added_bos().value_or(-1);
  LoadOptions load;
  load.pool = &pool;
  load.device = request.device;
  load.may_use_cpu = true;
  const Model model = Model::load(source, config, load);
  return write_self_text(model, options, [&](int64_t done, int64_t total) {
    if (request.check) request.check();
    if (request.writing) request.writing(done, total);
  });
}

PreparedCalibration prepare_imatrix(const CheckpointSource& source, const Recipe& recipe,
                                    const CalibrationRequest& request) {
  const auto refuse = [&](const char* option) {
    throw Error(ErrorCode::usage, request.text,
                std::string("has means of squares only, which does not go with ") + option);
  };
  if (recipe.rotate == RotateAt::residual) refuse("--rotate residual");
  if (!request.curvature.empty()) refuse("--curvature");
  const std::string where = source.checkpoint()->config_place();
  const Json config = parse_json(source.config_json(), where);
  const Json* text = find_object(config, "text_config", where);
  const std::string type =
      find_string(text != nullptr ? *text : config, "model_type", where).value_or("");
  const auto bytes = std::as_bytes(std::span(*request.content));
  auto statistics = std::make_shared<ImatrixStatistics>(*request.imatrix, bytes, request.text, type,
                                                        read_plan(source.config_json(), where));
  PreparedCalibration result;
  result.description.checksum = checksum(bytes).hex();
  result.statistics = std::move(statistics);
  return result;
}

}  // namespace

void CalibrationRequest::read(const std::string& folder, ThreadPool& pool) {
  if (text.empty() || content || own) return;
  std::string path = text;
  if (text == kOwnText) {
    if (curvature.empty()) {
      if (is_checkpoint(folder)) {
        own = std::make_shared<const std::vector<int32_t>>(written_by_itself(folder, *this, pool));
      }
      return;
    }
    path = std::filesystem::path(curvature) / kOwnTextFile;
    std::error_code unreadable;
    if (!std::filesystem::exists(path, unreadable)) {
      throw Error(ErrorCode::usage, curvature,
                  "was measured on a text that the model did not write: give that text");
    }
  }
  content = std::make_shared<const std::string>(read_text_input(path, kMaxTextBytes));
  if (text == kOwnText) return;  // the model may write any bytes; a text of the user is checked
  imatrix = read_imatrix(std::as_bytes(std::span(*content)), path);
  if (!imatrix) check_utf8_text(*content, path);
}

PreparedCalibration prepare_calibration(const std::string& folder, const Recipe& recipe,
                                        const CalibrationRequest& request, ThreadPool& pool) {
  CalibrationRequest known = request;
  known.read(folder, pool);
  const CheckpointSource source = CheckpointSource::open(folder);
  if (known.imatrix) return prepare_imatrix(source, recipe, known);
  const Tokenizer tokenizer = read_tokenizer(source);
  const int64_t window = window_of(read_config(source));
  const std::vector<int32_t> tokens =
      known.own ? *known.own : tokenizer.encode(*known.content, false);
  const int64_t wanted = known.own ? static_cast<int64_t>(tokens.size()) : request.tokens;
  auto windows = calibration_windows(tokens, wanted, window, tokenizer.added_bos().value_or(-1));
  PreparedCalibration result;
  const auto bytes =
      known.own ? std::as_bytes(std::span(tokens)) : std::as_bytes(std::span(*known.content));
  result.description.checksum = checksum(bytes).hex();
  result.description.tokens = window * static_cast<int64_t>(windows.size());
  result.description.window = window;
  if (!request.curvature.empty()) {
    result.curvature = std::make_shared<const CurvatureFiles>(request.curvature);
    result.curvature->check_text(result.description.checksum);
    result.description.curvature = result.curvature->checksum();
  }
  std::optional<Rotation> fold;
  if (recipe.rotate == RotateAt::residual) fold = fold_rotation(recipe);
  result.statistics = std::make_shared<LayerStatistics>(folder, std::move(windows), pool,
                                                        request.check, fold, request.device);
  return result;
}

std::unique_ptr<Compressor> open_calibrated(const std::string& folder, Recipe recipe,
                                            const CalibrationRequest& request, ThreadPool& pool) {
  // If this is no checkpoint, open_compressor has the better message.
  if (request.text.empty() || !is_checkpoint(folder)) {
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
