// Takes arbitrary bytes as the file of an image, which a request or a user gives. They must give a
// walsh::Error, or pixels of the size that the file says, which can be made into patches.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "vision/image.h"
#include "vision/preprocess.h"
#include "walsh/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace walsh::vision;
  walsh::ImageLimits limits;
  limits.pixels = 1 << 20;
  try {
    const Image image = decode_image(std::as_bytes(std::span(data, size)), "input", limits);
    if (image.width < 1 || image.height < 1 || image.width * image.height > limits.pixels ||
        image.rgb.size() != static_cast<size_t>(image.width * image.height * 3))
      std::abort();
    PreprocessRule rule;
    rule.sizing = Sizing::box;
    rule.height = rule.width = 64;
    rule.step = 16;
    const Rows grid = make_patches(image, rule, 8, "input");
    if (grid.values.size() != static_cast<size_t>(grid.rows * grid.columns * grid.width))
      std::abort();
  } catch (const walsh::Error&) {
  }
  return 0;
}
