#include "vision/image_encoder.h"

#include <fmt/format.h>

#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include "base/thread_pool.h"
#include "io/checkpoint.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "vision/family.h"
#include "vision/image.h"
#include "vision/tower.h"
#include "walsh/error.h"
#include "weights/folder_config.h"

namespace walsh {
namespace {

constexpr uint64_t kMaxProcessorBytes = 1 << 20;

class TowerEncoder : public ImageEncoder {
 public:
  TowerEncoder(vision::VisionModel model, std::shared_ptr<const Checkpoint> checkpoint,
               std::string placeholder_text, int threads, const ImageLimits& limits)
      : model_(std::move(model)),
        tower_(model_.tower, std::move(checkpoint)),
        placeholder_text_(std::move(placeholder_text)),
        limits_(limits),
        pool_(threads) {}

  int32_t placeholder() const override { return model_.prompt.placeholder; }
  std::string_view placeholder_text() const override { return placeholder_text_; }
  std::string_view prompt_text() const override {
    return model_.prompt.text.empty() ? placeholder_text_ : std::string_view(model_.prompt.text);
  }

  ImageEmbedding encode(std::span<const std::byte> file, const std::string& where,
                        int64_t most_rows) const override {
    const std::lock_guard lock(mutex_);
    const vision::Image image = vision::decode_image(file, where, limits_);
    check_rows({image.height, image.width}, where, most_rows);
    const vision::Rows rows = tower_.run(
        vision::make_patches(image, model_.preprocess, model_.tower.patch, where), pool_);
    ImageEmbedding result;
    result.rows = rows.count();
    result.width = rows.width;
    result.values.assign(rows.values.begin(), rows.values.end());
    result.tokens = tokens_of(rows);
    result.image_token = model_.prompt.image;
    result.bidirectional = model_.prompt.bidirectional;
    if (model_.prompt.axes) result.grid_columns = rows.columns;
    result.content = checksum(file);
    return result;
  }

 private:
  void check_rows(const vision::ImageSize& image, const std::string& where, int64_t most) const {
    const vision::ImageSize size = vision::resized(model_.preprocess, image, where);
    if (size.height * size.width > limits_.pixels)
      throw Error(ErrorCode::limit, where,
                  fmt::format("the model's files make {} x {} pixels of it, {} are allowed",
                              size.width, size.height, limits_.pixels));
    const int64_t area = model_.tower.patch * model_.tower.patch * tower_.patches_per_row();
    const int64_t rows = size.height * size.width / area;
    if (rows <= most) return;
    throw Error(ErrorCode::usage, where,
                fmt::format("it takes {} positions, and the prompt has room for {}", rows, most));
  }

  std::vector<int32_t> tokens_of(const vision::Rows& rows) const {
    const vision::PromptForm& form = model_.prompt;
    std::vector<int32_t> tokens;
    if (form.begin != vision::kNoToken) tokens.push_back(form.begin);
    for (int64_t row = 0; row < rows.rows; ++row) {
      tokens.insert(tokens.end(), static_cast<size_t>(rows.columns), form.image);
      if (form.row_end != vision::kNoToken) tokens.push_back(form.row_end);
    }
    if (form.end != vision::kNoToken && form.row_end != vision::kNoToken) tokens.pop_back();
    if (form.end != vision::kNoToken) tokens.push_back(form.end);
    return tokens;
  }

  vision::VisionModel model_;
  vision::Tower tower_;
  std::string placeholder_text_;
  ImageLimits limits_;
  mutable std::mutex mutex_;  // the pool has one caller at a time
  mutable ThreadPool pool_;
};

Json config_of(const WeightSource& source) {
  return parse_json(source.config_json(), source.path() + ": config.json");
}

// Returns the reader of the model's tower, or null for a model without one.
const vision::VisionFamily* family_of(const Json& config) {
  const auto vision = config.find("vision_config"), type = config.find("model_type");
  if (vision == config.end() || !vision->is_object() || type == config.end() || !type->is_string())
    return nullptr;
  return vision::find_vision_family(type->get_ref<const std::string&>());
}

bool is_checkpoint_folder(const std::string& path) {
  std::error_code unreadable;
  return std::filesystem::is_directory(path, unreadable) && !is_walsh_folder(path);
}

// Returns the settings of the processor of images. They are in processor_config.json, where
// transformers 5 writes them, or in preprocessor_config.json.
Json processor_of(const std::string& folder, std::string& where) {
  std::error_code unreadable;
  where = folder + "/processor_config.json";
  if (std::filesystem::exists(where, unreadable)) {
    const Json all = parse_json(read_text_file(where, kMaxProcessorBytes), where);
    if (const Json* images = find_object(all, "image_processor", where)) return *images;
  }
  where = folder + "/preprocessor_config.json";
  if (!std::filesystem::exists(where, unreadable))
    throw Error(ErrorCode::bad_input, where, "missing: it says how images are prepared");
  Json object = parse_json(read_text_file(where, kMaxProcessorBytes), where);
  if (!object.is_object()) throw Error(ErrorCode::bad_input, where, "expected an object");
  return object;
}

}  // namespace

std::shared_ptr<const ImageEncoder> ImageEncoder::open(const WeightSource& source,
                                                       const Tokenizer& tokenizer, int threads,
                                                       const ImageLimits& limits) {
  const std::string path = source.path();
  const Json config = config_of(source);
  const vision::VisionFamily* family = family_of(config);
  if (family == nullptr || !is_checkpoint_folder(path)) return nullptr;
  std::string processor_where;
  const Json processor = processor_of(path, processor_where);
  vision::VisionModel model =
      family->read({config, processor, tokenizer, path + ": config.json", processor_where});
  const std::optional<std::string> text = tokenizer.token(model.prompt.placeholder);
  if (!text) {
    throw Error(ErrorCode::bad_input, path + ": config.json",
                "the tokenizer lacks the token " + std::to_string(model.prompt.placeholder) +
                    ", which stands for an image");
  }
  auto checkpoint = std::make_shared<const Checkpoint>(Checkpoint::open(path));
  return std::make_shared<const TowerEncoder>(std::move(model), std::move(checkpoint), *text,
                                              threads, limits);
}

std::string missing_tower(const WeightSource& source) {
  const Json config = config_of(source);
  if (!config.contains("vision_config")) return "the model takes no images";
  if (family_of(config) == nullptr) return "images of this kind of model are not supported";
  if (is_checkpoint_folder(source.path())) return "";
  return "there is only the text part of the model: open its checkpoint folder for images";
}

}  // namespace walsh
