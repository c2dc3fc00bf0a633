// Decodes the file of an image to 8-bit RGB within limits. Files are taken as hostile.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vision/image_encoder.h"

namespace walsh::vision {

struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  // its shape is [height][width][3]
};

// Reads a JPEG, PNG or WebP file as Pillow and transformers do: the image is turned as its EXIF
// orientation says, transparent pixels are laid over white, grey becomes RGB, CMYK is converted
// without a profile, and 16 bits are cut to 8. Throws bad_input for another kind of file, a damaged
// or an animated one, and limit for one beyond `limits`.
Image decode_image(std::span<const std::byte> file, const std::string& where,
                   const ImageLimits& limits);

// Turns an image as an EXIF orientation of 1 to 8 says; any other number leaves it as it is.
Image turn_image(Image image, int orientation);

// Returns the orientation in a TIFF header and its first directory; 1 if there is none.
int exif_orientation(std::span<const std::byte> tiff);

// Holds the result of the decoder of each kind of file. `pixels` has 3 channels, or 4 with alpha.
struct DecodedFile {
  int64_t width = 0, height = 0;
  int channels = 3;
  std::vector<uint8_t> pixels;
  int orientation = 1;
};

// Holds the limits and the deadline that decoders obey while they read a file.
class DecodeGuard {
 public:
  DecodeGuard(const std::string& where, const ImageLimits& limits);

  // Throws limit for a size beyond the limits, bad_input for an empty one.
  void check_size(int64_t width, int64_t height) const;
  // Returns whether the time for decoding is over; `fail_late` throws limit then.
  bool late() const { return std::chrono::steady_clock::now() > end_; }
  [[noreturn]] void fail_late() const;
  [[noreturn]] void fail(const std::string& reason) const;

 private:
  std::string where_;
  ImageLimits limits_;
  std::chrono::steady_clock::time_point end_;
};

DecodedFile decode_jpeg(std::span<const std::byte> file, const DecodeGuard& guard);
DecodedFile decode_png(std::span<const std::byte> file, const DecodeGuard& guard);
DecodedFile decode_webp(std::span<const std::byte> file, const DecodeGuard& guard);

}  // namespace walsh::vision
