// Turns an image into the patches that a vision tower reads, as transformers' processors of images
// do.
#pragma once

#include <cstdint>
#include <string>

#include "io/json.h"
#include "vision/image_grid.h"
#include "vision/resize.h"

namespace walsh::vision {

// Says how the new size of an image follows from its own.
enum class Sizing : uint8_t {
  box,    // the image shrinks into height x width, then sides are rounded up to the step
  fixed,  // the image gets height x width
  area    // rounded to the step, with min_pixels to max_pixels pixels
};

struct PreprocessRule {
  Sizing sizing = Sizing::box;
  int64_t height = 0, width = 0;
  int64_t min_pixels = 0, max_pixels = 0;
  int64_t step = 1;  // sides become multiples of it
  bool resize = true;
  Filter filter = Filter::bicubic;
  // A pixel value x from 0 to 255 becomes (x - mean) / deviation.
  float mean[3] = {}, deviation[3] = {1, 1, 1};
};

// Changes the defaults of a family by the JSON object of a processor of images. Throws bad_input
// for values that are not supported.
PreprocessRule read_preprocess(const Json& object, PreprocessRule defaults,
                               const std::string& where);
// These are the statistics of the images of CLIP, with which many towers were trained.
inline constexpr float kClipMean[3] = {0.48145466F, 0.4578275F, 0.40821073F};
inline constexpr float kClipDeviation[3] = {0.26862954F, 0.26130258F, 0.27577711F};

// Sets mean and deviation from statistics of values in 0 ... 1.
void set_normalization(PreprocessRule& rule, const float (&mean)[3], const float (&deviation)[3]);

struct ImageSize {
  int64_t height, width;
  bool operator==(const ImageSize&) const = default;
};
// Returns the size that an image of this size is resized to. Throws bad_input, naming the image,
// for a shape that the rule refuses.
ImageSize resized(const PreprocessRule& rule, ImageSize size, const std::string& where);

// Returns the patches of an image, each as [3][side][side].
Rows make_patches(const Image& image, const PreprocessRule& rule, int64_t side,
                  const std::string& where);

}  // namespace walsh::vision
