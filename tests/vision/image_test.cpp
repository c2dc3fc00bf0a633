// Tests decoding against Pillow, and what hostile files get.
#include "vision/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "vision/files.h"
#include "walsh/error.h"

namespace walsh::vision {
namespace {

// The decoders of JPEG and WebP may round otherwise in other versions.
void expect_pixels(const std::string& name, int tolerance) {
  const Image image = decode_image(test::read_image(name), name, {});
  const auto expected = test::read_image(name + ".rgb");
  int32_t size[2];
  std::memcpy(size, expected.data(), sizeof(size));
  ASSERT_EQ(image.height, size[0]) << name;
  ASSERT_EQ(image.width, size[1]) << name;
  ASSERT_EQ(image.rgb.size() + sizeof(size), expected.size()) << name;
  int most = 0;
  for (size_t i = 0; i < image.rgb.size(); ++i)
    most = std::max(most, std::abs(image.rgb[i] - std::to_integer<int>(expected[8 + i])));
  EXPECT_LE(most, tolerance) << name;
}

ErrorCode code_of(std::span<const std::byte> file, const ImageLimits& limits = {}) {
  try {
    decode_image(file, "image", limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.where(), "image");
    EXPECT_FALSE(error.reason().empty());
    return error.code();
  }
  ADD_FAILURE() << "the file was accepted";
  return ErrorCode::internal;
}

TEST(DecodeImage, PngPixelsAreThoseOfPillow) {
  for (const char* name : {"colour.png", "grey.png", "bits.png", "alpha.png", "grey_alpha.png",
                           "palette.png", "colourless.webp"})
    expect_pixels(name, 0);
}

TEST(DecodeImage, JpegAndWebpPixelsAreThoseOfPillow) {
  for (const char* name : {"progressive.jpg", "turned.jpg", "grey.jpg", "ink.jpg", "lossy.webp"})
    expect_pixels(name, 2);
}

TEST(DecodeImage, EveryOrientationTurnsTheImage) {
  for (int orientation = 1; orientation <= 8; ++orientation)
    expect_pixels("orientation" + std::to_string(orientation) + ".png", 0);
}

TEST(DecodeImage, FilesThatEndTooEarlyAreRefused) {
  for (const char* name : {"progressive.jpg", "ink.jpg", "colour.png", "lossy.webp"}) {
    const auto file = test::read_image(name);
    for (size_t size : {size_t{3}, size_t{20}, file.size() / 3, file.size() * 3 / 4})
      EXPECT_EQ(code_of(std::span(file).first(size)), ErrorCode::bad_input) << name << " " << size;
  }
}

TEST(DecodeImage, OtherKindsOfFilesAreRefused) {
  EXPECT_EQ(code_of({}), ErrorCode::bad_input);
  const std::string gif = "GIF89a and more";
  EXPECT_EQ(code_of(std::as_bytes(std::span(gif))), ErrorCode::bad_input);
  EXPECT_EQ(code_of(test::read_image("animated.webp")), ErrorCode::bad_input);
}

TEST(DecodeImage, LimitsAreKept) {
  for (const char* name : {"progressive.jpg", "turned.jpg", "lossy.webp"}) {
    const auto file = test::read_image(name);
    EXPECT_EQ(code_of(file, {.bytes = 100}), ErrorCode::limit) << name;
    EXPECT_EQ(code_of(file, {.pixels = 61 * 47 - 1}), ErrorCode::limit) << name;
    EXPECT_EQ(code_of(file, {.milliseconds = -1}), ErrorCode::limit) << name;
  }
}

TEST(DecodeImage, DamagedBytesNeverDoMoreThanChangePixelsOrGiveAnError) {
  for (const char* name : {"progressive.jpg", "palette.png", "colourless.webp", "lossy.webp"}) {
    const auto file = test::read_image(name);
    for (size_t place = 0; place < file.size(); place += 7) {
      auto damaged = file;
      damaged[place] ^= std::byte{0x55};
      try {
        const Image image = decode_image(damaged, name, {.pixels = 1 << 20});
        EXPECT_EQ(image.rgb.size(), static_cast<size_t>(image.width * image.height * 3));
      } catch (const Error& error) {
        EXPECT_NE(error.code(), ErrorCode::internal);
      }
    }
  }
}

TEST(ExifOrientation, BrokenDirectoriesTurnNothing) {
  const auto orientation = [](const std::string& tiff) {
    return exif_orientation(std::as_bytes(std::span(tiff)));
  };
  using namespace std::string_literals;
  const std::string entry = "\x12\x01\x03\0\x01\0\0\0\x06\0\0\0"s;
  EXPECT_EQ(orientation("II*\0\x08\0\0\0\x01\0"s + entry), 6);
  EXPECT_EQ(orientation("II*\0\x08\0\0\0\xff\xff"s + entry), 6);
  EXPECT_EQ(orientation("II*\0\xff\xff\xff\xff\x01\0"s + entry), 1);
  EXPECT_EQ(orientation("II*\0\x08\0\0\0\x01\0"s + entry.substr(0, 11)), 1);
  EXPECT_EQ(orientation("II"), 1);
  EXPECT_EQ(orientation("XX*\0"s), 1);
}

}  // namespace
}  // namespace walsh::vision
