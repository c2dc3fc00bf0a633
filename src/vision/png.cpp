// Reads PNG files with libpng. It leaves its functions by longjmp where it fails, so nothing with a
// destructor lives in those that call it.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>

#include "vision/image.h"

namespace walsh::vision {
namespace {

// What a text or a profile becomes may have this many bytes.
constexpr png_alloc_size_t kMaxChunk = 8U << 20;
constexpr png_uint_32 kMaxSide = 1U << 26, kMaxChunks = 1000;

struct Failure {
  char text[160] = {};
  bool late = false;
};

void leave(png_structp png, png_const_charp text) {
  auto* f = static_cast<Failure*>(png_get_error_ptr(png));
  std::strncpy(f->text, text, sizeof(f->text) - 1);
  png_longjmp(png, 1);
}

void pass_over(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto& rest = *static_cast<std::span<const std::byte>*>(png_get_io_ptr(png));
  if (count > rest.size()) png_error(png, "the file ends too early");
  std::memcpy(to, rest.data(), count);
  rest = rest.subspan(count);
}

class PngReader {
 public:
  PngReader(std::span<const std::byte> file, const DecodeGuard& guard)
      : rest_(file), guard_(guard) {}
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // These two return whether they succeeded.
  bool read_header() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &failure_, leave, pass_over);
    if (png_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) png_error(png_, "there is no memory");
    png_set_user_limits(png_, kMaxSide, kMaxSide);
    png_set_chunk_malloc_max(png_, kMaxChunk);
    png_set_chunk_cache_max(png_, kMaxChunks);
    png_set_read_fn(png_, &rest_, read_bytes);
    png_read_info(png_, info_);
    return true;
  }
  // Decides how pixels are converted; then channels() says how many values they have.
  bool choose_form() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_gray_to_rgb(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (channels() != 3 && channels() != 4) png_error(png_, "its colours are of no known kind");
    return true;
  }
  // Writes the pixels, [height][width][channels()].
  bool read_rows(uint8_t* pixels) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    const size_t row_bytes = png_get_rowbytes(png_, info_);
    for (int pass = 0; pass < passes_; ++pass) {
      for (png_uint_32 y = 0; y < png_get_image_height(png_, info_); ++y) {
        if (guard_.late()) {
          failure_.late = true;
          return false;
        }
        png_read_row(png_, pixels + y * row_bytes, nullptr);
      }
    }
    png_read_end(png_, info_);
    return true;
  }

  int64_t width() const { return png_get_image_width(png_, info_); }
  int64_t height() const { return png_get_image_height(png_, info_); }
  int channels() const { return png_get_channels(png_, info_); }
  int orientation() const {
    png_uint_32 count = 0;
    png_bytep exif = nullptr;
    if (png_get_eXIf_1(png_, info_, &count, &exif) == 0 || exif == nullptr) return 1;
    return exif_orientation(std::as_bytes(std::span(exif, count)));
  }
  [[noreturn]] void fail() const {
    if (failure_.late) guard_.fail_late();
    guard_.fail(std::string("the PNG file is damaged or not supported: ") + failure_.text);
  }

 private:
  std::span<const std::byte> rest_;
  const DecodeGuard& guard_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  Failure failure_;
};

}  // namespace

DecodedFile decode_png(std::span<const std::byte> file, const DecodeGuard& guard) {
  PngReader reader(file, guard);
  if (!reader.read_header()) reader.fail();
  guard.check_size(reader.width(), reader.height());
  if (!reader.choose_form()) reader.fail();
  DecodedFile result;
  result.width = reader.width();
  result.height = reader.height();
  result.channels = reader.channels();
  result.pixels.resize(static_cast<size_t>(result.width * result.height * result.channels));
  if (!reader.read_rows(result.pixels.data())) reader.fail();
  result.orientation = reader.orientation();
  return result;
}

}  // namespace walsh::vision
