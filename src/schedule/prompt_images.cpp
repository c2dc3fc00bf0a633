#include "schedule/prompt_images.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/common_prefix.h"

namespace walsh {
namespace {

const PromptImage* split_at(std::span<const PromptImage> images, int64_t position) {
  for (const PromptImage& image : images)
    if (image.together && image.position < position && position < image.end()) return &image;
  return nullptr;
}

}  // namespace

int64_t common_prefix(const TextKey& a, const TextKey& b) {
  int64_t common = common_prefix(a.tokens, b.tokens);
  const size_t most = std::max(a.images.size(), b.images.size());
  for (size_t i = 0; i < most; ++i) {
    const PromptImage* of_a = i < a.images.size() ? &a.images[i] : nullptr;
    const PromptImage* of_b = i < b.images.size() ? &b.images[i] : nullptr;
    if (of_a != nullptr && of_b != nullptr && of_a->same(*of_b)) continue;
    if (of_a != nullptr) common = std::min(common, of_a->position);
    if (of_b != nullptr) common = std::min(common, of_b->position);
    break;
  }
  return common;
}

void check_images(std::span<const PromptImage> images, int64_t tokens, const Session& session) {
  int64_t end = 0;
  for (const PromptImage& image : images) {
    if (image.rows < 1 || image.position < end || image.rows > tokens - image.position)
      throw Error(ErrorCode::usage, "image",
                  fmt::format("{} rows from position {} on do not fit into the prompt of {} tokens",
                              image.rows, image.position, tokens));
    end = image.end();
    if (image.values == nullptr) throw Error(ErrorCode::usage, "image", "has no values");
  }
  session.check_images(rows_of(images));
}

std::vector<ImageRows> rows_of(std::span<const PromptImage> images) {
  std::vector<ImageRows> rows;
  for (const PromptImage& image : images)
    rows.push_back({image.position, image.rows, *image.values, image.together, image.columns});
  return rows;
}

std::vector<PromptImage> keys_of(std::span<const PromptImage> images) {
  std::vector<PromptImage> keys(images.begin(), images.end());
  for (PromptImage& key : keys)
    key.values.reset();
  return keys;
}

int64_t reachable_whole(const Session& session, int64_t sequence,
                        std::span<const PromptImage> images, int64_t position) {
  for (;;) {
    const int64_t there = session.reachable(sequence, position);
    const PromptImage* image = split_at(images, there);
    if (image == nullptr) return there;
    position = image->position;
  }
}

int64_t whole_rows(std::span<const PromptImage> images, int64_t position, int64_t rows) {
  const PromptImage* image = split_at(images, position + rows);
  if (image == nullptr) return rows;
  return (image->position > position ? image->position : image->end()) - position;
}

}  // namespace walsh
