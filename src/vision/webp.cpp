#include <webp/decode.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "vision/image.h"

namespace walsh::vision {
namespace {

// This many bytes are decoded between looks at the clock.
constexpr size_t kPiece = size_t{64} << 10;

struct DeleteDecoder {
  void operator()(WebPIDecoder* decoder) const { WebPIDelete(decoder); }
};

// Returns the orientation in the chunk EXIF of the RIFF file; 1 if there is none.
int orientation_of(std::span<const std::byte> file) {
  constexpr size_t kHeader = 12, kChunk = 8;
  for (size_t place = kHeader; place + kChunk <= file.size();) {
    uint32_t size = 0;
    for (size_t i = 0; i < 4; ++i)
      size |= std::to_integer<uint32_t>(file[place + 4 + i]) << (8 * i);
    const auto content = file.subspan(place + kChunk);
    if (std::memcmp(file.data() + place, "EXIF", 4) == 0) {
      auto exif = content.first(std::min<size_t>(size, content.size()));
      constexpr char kName[] = "Exif\0";  // some programs write the name that JPEG files have
      if (exif.size() > sizeof(kName) && std::memcmp(exif.data(), kName, sizeof(kName)) == 0)
        exif = exif.subspan(sizeof(kName));
      return exif_orientation(exif);
    }
    place += kChunk + size + (size & 1);
  }
  return 1;
}

}  // namespace

DecodedFile decode_webp(std::span<const std::byte> file, const DecodeGuard& guard) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(file.data());
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(bytes, file.size(), &features) != VP8_STATUS_OK)
    guard.fail("the WebP file is damaged");
  if (features.has_animation != 0) guard.fail("the WebP file is animated, expected a single image");
  guard.check_size(features.width, features.height);
  DecodedFile result;
  result.width = features.width;
  result.height = features.height;
  result.channels = features.has_alpha != 0 ? 4 : 3;
  result.pixels.resize(static_cast<size_t>(result.width * result.height * result.channels));
  const std::unique_ptr<WebPIDecoder, DeleteDecoder> decoder(
      WebPINewRGB(result.channels == 4 ? MODE_RGBA : MODE_RGB, result.pixels.data(),
                  result.pixels.size(), static_cast<int>(result.width) * result.channels));
  if (decoder == nullptr) guard.fail("the WebP file cannot be decoded");
  VP8StatusCode status = VP8_STATUS_SUSPENDED;
  for (size_t end = 0; status == VP8_STATUS_SUSPENDED && end < file.size();) {
    if (guard.late()) guard.fail_late();
    end = std::min(file.size(), end + kPiece);
    status = WebPIUpdate(decoder.get(), bytes, end);
  }
  if (status != VP8_STATUS_OK) guard.fail("the WebP file is damaged or ends too early");
  result.orientation = orientation_of(file);
  return result;
}

}  // namespace walsh::vision
