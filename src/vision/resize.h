// Resizes 8-bit images with antialiasing, to the bit as torchvision does on CPUs.
#pragma once

#include "vision/image.h"

namespace walsh::vision {

enum class Filter : uint8_t { bilinear, bicubic };

// First columns, then rows are resampled, with weights of 16 bits and 8-bit values in between, as
// in Pillow and torch.
Image resize_image(const Image& image, int64_t width, int64_t height, Filter filter);

}  // namespace walsh::vision
