// A prompt may have images, each of which stands in the place of some of its tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/image_rows.h"
#include "model/session.h"

namespace walsh {

struct PromptImage {
  int64_t position = 0, rows = 0;  // it stands for these tokens of the prompt
  // The layers read these (ImageRows::values). They are null in the key of a text that is only
  // compared.
  std::shared_ptr<const std::vector<float>> values;
  // Images have the same hash of their content if they have the same rows, and only then.
  std::string hash;
  bool together = false;  // its rows see each other in both directions
  int64_t columns = 0;    // ImageRows::columns explains it.

  int64_t end() const { return position + rows; }
  bool same(const PromptImage& other) const {
    return position == other.position && rows == other.rows && together == other.together &&
           hash == other.hash;
  }
};

// Identifies the evaluated part of a text, which follows from the tokens and, where an image
// stands, from the image.
struct TextKey {
  std::span<const int32_t> tokens;
  std::span<const PromptImage> images;  // they are in the order of their positions
};

// Returns the number of positions at the beginning in which both texts agree.
int64_t common_prefix(const TextKey& a, const TextKey& b);

// Throws usage for images that are not in the order of their positions within `tokens` tokens, have
// no room for their rows, or which the session cannot take.
void check_images(std::span<const PromptImage> images, int64_t tokens, const Session& session);

// Returns the images as sessions take them; their values belong to `images`.
std::vector<ImageRows> rows_of(std::span<const PromptImage> images);
// Returns copies of the images without their values.
std::vector<PromptImage> keys_of(std::span<const PromptImage> images);

// Returns the largest position that is at most this one, to which the session can return in a
// sequence, and that is not inside of an image whose rows see each other.
int64_t reachable_whole(const Session& session, int64_t sequence,
                        std::span<const PromptImage> images, int64_t position);
// Returns how many of `rows` rows from `position` on can be evaluated without the ones after them.
// Where the first of them belong to an image whose rows see each other, these are all its rows.
int64_t whole_rows(std::span<const PromptImage> images, int64_t position, int64_t rows);

}  // namespace walsh
