// Resizes 8-bit images with antialiasing, to the bit as torchvision does on CPUs.
#pragma once

#include "vision/image.h"

namespace walsh::vision {

enum class Filter : uint8_t { bilinear, bicubic };

// Resamples first the columns, then the rows, with weights of 16 bits and 8-bit values in between,
// as Pillow and torch do.
Image resize_image(const Image& image, int64_t width, int64_t height, Filter filter);

}  // namespace walsh::vision
