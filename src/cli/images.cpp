#include "cli/images.h"

#include <cstdint>

#include "io/mapped_file.h"
#include "vision/image_encoder.h"

namespace walsh::cli {

std::string read_image(const std::string& path) {
  return read_text_input(path, ImageLimits().bytes);
}

std::vector<std::string> read_images(const std::vector<std::string>& paths) {
  std::vector<std::string> images;
  for (const std::string& path : paths)
    images.push_back(read_image(path));
  return images;
}

}  // namespace walsh::cli
