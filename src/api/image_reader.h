// Puts images into prompts by the vision tower of a model.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schedule/prompt_images.h"
#include "vision/image_encoder.h"
#include "walsh/error.h"

namespace walsh {

// Says that images in prompts that run or wait have taken all memory for rows.
class NoRoomForImages : public Error {
 public:
  using Error::Error;
};

// Encodes images and puts their rows into prompts. It is thread-safe, and opens the encoder when it
// is needed first.
class ImageReader {
 public:
  using Open = std::function<std::shared_ptr<const ImageEncoder>()>;
  static constexpr int64_t kMostBytes = int64_t{1} << 30;

  // Makes one that takes no images; `missing` says in a sentence why.
  explicit ImageReader(std::string missing) : missing_(std::move(missing)) {}
  // The rows of all images that prompts hold have at most this many bytes together.
  explicit ImageReader(Open open, int64_t most_bytes = kMostBytes)
      : open_(std::move(open)), most_bytes_(most_bytes) {}

  bool present() const { return missing_.empty(); }
  // Returns why it takes no images; empty if it does.
  const std::string& missing() const { return missing_; }

  // Returns the text of a prompt, with a placeholder for each image, as it has to be tokenized
  // where there are images: families put texts around them.
  std::string prompt_text(std::string prompt) const;
  // Replaces the placeholders of images in the tokens of such a text by what stands for `files`,
  // the contents of as many image files, and names the rows in `images`. Once the prompt has more
  // than `most` tokens, and so is too long for its model, the rest is left out; an image that has
  // too many rows for the rest of them is not encoded but refused. Files that one owner has shown
  // lately are not encoded again: the time would tell others that they were.
  // Throws usage if there are more or fewer placeholders, NoRoomForImages, and as
  // ImageEncoder::encode.
  void show(std::vector<int32_t>& prompt, std::span<const std::string> files,
            std::vector<PromptImage>& images, const std::string& owner = "",
            int64_t most = std::numeric_limits<int64_t>::max()) const;

 private:
  struct Shown;
  struct Known {
    std::string owner, hash;
    std::shared_ptr<const Shown> image;
  };

  // These do not encode an image that would have more than `most` rows.
  Known known(const std::string& file, size_t number, const std::string& owner, int64_t most) const;
  std::shared_ptr<const Shown> encoded(const std::string& file, size_t number, int64_t most) const;
  std::shared_ptr<const ImageEncoder> encoder() const;

  std::string missing_;
  Open open_;
  int64_t most_bytes_ = 0;
  // This counts the bytes of all rows. Prompts that share it may outlive the reader.
  std::shared_ptr<std::atomic<int64_t>> held_ = std::make_shared<std::atomic<int64_t>>(0);
  mutable std::mutex mutex_;  // It guards what follows.
  mutable std::shared_ptr<const ImageEncoder> encoder_;
  mutable std::list<Known> known_;  // The most recently used one comes first.
};

}  // namespace walsh
