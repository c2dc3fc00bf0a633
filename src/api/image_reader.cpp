#include "api/image_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/spelling.h"
#include "io/keyed_hash.h"

namespace walsh {
namespace {

// Clients send all images of a conversation with every message.
constexpr size_t kMostKnown = 16;

// Nobody can make files of equal hashes, since one of them depends on a secret.
std::string hash_of(const std::string& file) {
  return fmt::format("{} {:016x}", checksum(std::as_bytes(std::span(file))).hex(),
                     keyed_hash(file, hash_secret()));
}

}  // namespace

// Holds an image as it stands in prompts. Where other tokens divide its rows, each run of rows is
// an image of its own for the model.
struct ImageReader::Shown {
  struct Part {
    int64_t position = 0, rows = 0;  // The position counts from the image's first token.
    std::vector<float> values;
  };

  Shown(const ImageEmbedding& image, std::shared_ptr<std::atomic<int64_t>> held_bytes)
      : tokens(image.tokens),
        together(image.bidirectional),
        columns(image.grid_columns),
        held(std::move(held_bytes)) {
    int64_t taken = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] != image.image_token) continue;
      const size_t begin = i;
      while (i < tokens.size() && tokens[i] == image.image_token)
        ++i;
      const auto rows = static_cast<int64_t>(i - begin);
      const float* values = image.values.data() + taken * image.width;
      parts.push_back({static_cast<int64_t>(begin), rows, {values, values + rows * image.width}});
      taken += rows;
    }
    bytes = bytes_of(image);
    *held += bytes;
  }
  ~Shown() { *held -= bytes; }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  static int64_t bytes_of(const ImageEmbedding& image) {
    return std::ssize(image.values) * static_cast<int64_t>(sizeof(float));
  }

  std::vector<int32_t> tokens;
  std::vector<Part> parts;
  bool together;
  int64_t columns;  // PromptImage
  int64_t bytes = 0;
  std::shared_ptr<std::atomic<int64_t>> held;
};

std::shared_ptr<const ImageEncoder> ImageReader::encoder() const {
  if (!present()) throw Error(ErrorCode::usage, "image", missing_);
  const std::lock_guard lock(mutex_);
  if (encoder_ == nullptr) encoder_ = open_();
  if (encoder_ == nullptr)
    throw Error(ErrorCode::bad_input, "image", "the files of the model's vision tower are gone");
  return encoder_;
}

std::shared_ptr<const ImageReader::Shown> ImageReader::encoded(const std::string& file,
                                                               size_t number, int64_t most) const {
  const std::string where = fmt::format("image {}", number);
  const ImageEmbedding image = encoder()->encode(std::as_bytes(std::span(file)), where, most);
  const int64_t rows = std::count(image.tokens.begin(), image.tokens.end(), image.image_token);
  if (image.rows != rows || std::ssize(image.values) != rows * image.width)
    throw Error(ErrorCode::internal, where, "its rows and its tokens differ");
  const int64_t bytes = Shown::bytes_of(image);
  const std::lock_guard lock(mutex_);
  // Those that no prompt has give way, the least recently used first.
  for (auto last = known_.end(); *held_ + bytes > most_bytes_ && last != known_.begin();)
    if (std::prev(last)->image.use_count() > 1) {
      --last;
    } else {
      last = known_.erase(std::prev(last));
    }
  if (*held_ + bytes > most_bytes_)
    throw NoRoomForImages(ErrorCode::limit, where,
                          fmt::format("images of all prompts have {} bytes at most, and this one "
                                      "needs {} beside {} of others",
                                      most_bytes_, bytes, held_->load()));
  return std::make_shared<const Shown>(image, held_);
}

ImageReader::Known ImageReader::known(const std::string& file, size_t number,
                                      const std::string& owner, int64_t most) const {
  const std::string hash = hash_of(file);
  const auto find = [&] {
    const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& known) {
      return known.owner == owner && known.hash == hash;
    });
    if (found != known_.end()) known_.splice(known_.begin(), known_, found);
    return found != known_.end();
  };
  {
    const std::lock_guard lock(mutex_);
    if (find()) return known_.front();
  }
  std::shared_ptr<const Shown> image = encoded(file, number, most);
  const std::lock_guard lock(mutex_);
  if (find()) return known_.front();
  known_.push_front({owner, hash, std::move(image)});
  if (known_.size() > kMostKnown) known_.pop_back();
  return known_.front();
}

std::string ImageReader::prompt_text(std::string prompt) const {
  const auto known = encoder();
  const std::string_view from = known->placeholder_text(), to = known->prompt_text();
  if (from.empty() || from == to) return prompt;
  std::string text;
  for (size_t at = 0, found = 0; at <= prompt.size(); at = found + from.size()) {
    found = prompt.find(from, at);
    text += prompt.substr(at, found - at);
    if (found == prompt.npos) break;
    text += to;
  }
  return text;
}

void ImageReader::show(std::vector<int32_t>& prompt, std::span<const std::string> files,
                       std::vector<PromptImage>& images, const std::string& owner,
                       int64_t most) const {
  const int32_t placeholder = encoder()->placeholder();
  const auto places = static_cast<size_t>(std::count(prompt.begin(), prompt.end(), placeholder));
  if (places != files.size())
    throw Error(ErrorCode::usage, "image",
                fmt::format("the prompt has {} for images (token {}), but there {} {}",
                            counted(static_cast<int64_t>(places), "place"), placeholder,
                            files.size() == 1 ? "is" : "are",
                            counted(static_cast<int64_t>(files.size()), "image")));
  std::vector<int32_t> shown;
  size_t next = 0;
  for (const int32_t token : prompt) {
    if (std::ssize(shown) > most) break;
    if (token != placeholder) {
      shown.push_back(token);
      continue;
    }
    const Known one = known(files[next], next + 1, owner, most - std::ssize(shown));
    for (const Shown::Part& part : one.image->parts) {
      PromptImage image;
      image.position = std::ssize(shown) + part.position;
      image.rows = part.rows;
      image.values = {one.image, &part.values};  // It shares ownership of the whole image.
      image.hash = fmt::format("{} {}", one.hash, part.position);
      image.together = one.image->together;
      image.columns = one.image->columns;
      images.push_back(std::move(image));
    }
    shown.insert(shown.end(), one.image->tokens.begin(), one.image->tokens.end());
    ++next;
  }
  prompt = std::move(shown);
}

}  // namespace walsh
