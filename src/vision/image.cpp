#include "vision/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "walsh/error.h"

namespace walsh::vision {
namespace {

// Resizing takes memory for the weights of each pixel of a side.
constexpr int64_t kMaxSide = 1 << 16;

bool begins_with(std::span<const std::byte> file, size_t offset, std::string_view magic) {
  return file.size() >= offset + magic.size() &&
         std::memcmp(file.data() + offset, magic.data(), magic.size()) == 0;
}

// Lays a colour over white, rounded as Pillow does.
uint8_t over_white(uint8_t colour, uint8_t alpha) {
  const uint32_t sum = (colour * uint32_t{alpha} + 255U * (255U - alpha) + 128U) << 7;
  return static_cast<uint8_t>((((sum >> 8) + sum) >> 8) >> 7);
}

Image without_alpha(DecodedFile file) {
  Image image{file.width, file.height, {}};
  if (file.channels == 3) {
    image.rgb = std::move(file.pixels);
    return image;
  }
  const auto count = static_cast<size_t>(file.width * file.height);
  image.rgb.resize(count * 3);
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* from = file.pixels.data() + i * 4;
    for (size_t c = 0; c < 3; ++c)
      image.rgb[i * 3 + c] = over_white(from[c], from[3]);
  }
  return image;
}

}  // namespace

DecodeGuard::DecodeGuard(const std::string& where, const ImageLimits& limits)
    : where_(where),
      limits_(limits),
      end_(std::chrono::steady_clock::now() + std::chrono::milliseconds(limits.milliseconds)) {}

void DecodeGuard::check_size(int64_t width, int64_t height) const {
  if (width < 1 || height < 1) fail("the image has no pixels");
  if (width > kMaxSide || height > kMaxSide || width * height > limits_.pixels) {
    throw Error(ErrorCode::limit, where_,
                fmt::format("the image has {} x {} pixels, expected at most {}, and {} in a row",
                            width, height, limits_.pixels, kMaxSide));
  }
}

void DecodeGuard::fail_late() const {
  throw Error(ErrorCode::limit, where_,
              fmt::format("decoding the image takes longer than {} ms", limits_.milliseconds));
}

void DecodeGuard::fail(const std::string& reason) const {
  throw Error(ErrorCode::bad_input, where_, reason);
}

Image decode_image(std::span<const std::byte> file, const std::string& where,
                   const ImageLimits& limits) {
  if (file.size() > limits.bytes) {
    throw Error(
        ErrorCode::limit, where,
        fmt::format("the file has {} bytes, expected at most {}", file.size(), limits.bytes));
  }
  const DecodeGuard guard(where, limits);
  DecodedFile decoded;
  if (begins_with(file, 0, "\xff\xd8\xff")) {
    decoded = decode_jpeg(file, guard);
  } else if (begins_with(file, 0, "\x89PNG\r\n\x1a\n")) {
    decoded = decode_png(file, guard);
  } else if (begins_with(file, 0, "RIFF") && begins_with(file, 8, "WEBP")) {
    decoded = decode_webp(file, guard);
  } else {
    guard.fail("the file is no JPEG, PNG or WebP image");
  }
  const int orientation = decoded.orientation;
  return turn_image(without_alpha(std::move(decoded)), orientation);
}

Image turn_image(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const bool swapped = orientation >= 5;
  const int64_t w = image.width, h = image.height;
  Image turned{swapped ? h : w, swapped ? w : h, std::vector<uint8_t>(image.rgb.size())};
  // These say from which end the rows and the columns of the stored image are read.
  const bool flip_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool flip_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  uint8_t* to = turned.rgb.data();
  for (int64_t y = 0; y < turned.height; ++y) {
    for (int64_t x = 0; x < turned.width; ++x, to += 3) {
      const int64_t column = swapped ? y : x, row = swapped ? x : y;
      const int64_t from_x = flip_x ? w - 1 - column : column;
      const int64_t from_y = flip_y ? h - 1 - row : row;
      std::memcpy(to, image.rgb.data() + (from_y * w + from_x) * 3, 3);
    }
  }
  return turned;
}

int exif_orientation(std::span<const std::byte> tiff) {
  constexpr uint32_t kOrientation = 0x0112, kShort = 3;
  const bool little = begins_with(tiff, 0, "II"), big = begins_with(tiff, 0, "MM");
  if (!little && !big) return 1;
  // Returns a number of `size` bytes, or 0 if the bytes are not there.
  const auto number = [&](uint64_t offset, uint64_t size) -> uint32_t {
    if (offset + size > tiff.size()) return 0;
    uint32_t value = 0;
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t place = little ? offset + size - 1 - i : offset + i;
      value = value << 8 | std::to_integer<uint32_t>(tiff[place]);
    }
    return value;
  };
  if (number(2, 2) != 42) return 1;
  const uint64_t directory = number(4, 4);
  const uint64_t entries = number(directory, 2);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t entry = directory + 2 + i * 12;
    if (entry + 12 > tiff.size()) break;
    if (number(entry, 2) != kOrientation || number(entry + 2, 2) != kShort) continue;
    const uint32_t value = number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace walsh::vision
