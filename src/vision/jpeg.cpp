// Reads JPEG files with libjpeg. It leaves its functions by longjmp where it fails, so nothing with
// a destructor lives in those that call it.
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <jpeglib.h>
// jpeglib.h has to know FILE and size_t first.
#include <jerror.h>

#include "vision/image.h"

namespace walsh::vision {
namespace {

constexpr int kExif = JPEG_APP0 + 1;
constexpr char kExifName[] = "Exif\0";  // it includes the zero that ends the literal

// jpeg_decompress_struct::client_data points to this.
struct Failure {
  std::jmp_buf jump;
  char text[JMSG_LENGTH_MAX] = {};
  bool late = false;
  const DecodeGuard* guard = nullptr;
};

Failure& failure(j_common_ptr info) {
  return *static_cast<Failure*>(info->client_data);
}

void leave(j_common_ptr info) {
  info->err->format_message(info, failure(info).text);
  std::longjmp(failure(info).jump, 1);
}

// A file that ends too early would be filled up with grey; other warnings change no more than some
// blocks, and Pillow shows the image as well.
void warn(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) leave(info);
}

void look_at_time(j_common_ptr info) {
  Failure& f = failure(info);
  if (!f.guard->late()) return;
  f.late = true;
  std::longjmp(f.jump, 1);
}

uint8_t without_ink(uint8_t ink, uint8_t white) {
  const uint32_t product = uint32_t{ink} * white + 128;
  return static_cast<uint8_t>(white - (((product >> 8) + product) >> 8));
}

class JpegReader {
 public:
  JpegReader(std::span<const std::byte> file, const DecodeGuard& guard) : file_(file) {
    failure_.guard = &guard;
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = leave;
    errors_.emit_message = warn;
    info_.client_data = &failure_;
    progress_.progress_monitor = look_at_time;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // These two return whether they succeeded.
  bool read_header() {
    if (setjmp(failure_.jump) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file_.data()),
                 static_cast<unsigned long>(file_.size()));
    jpeg_save_markers(&info_, kExif, 0xffff);
    jpeg_read_header(&info_, TRUE);
    has_ink_ = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = has_ink_ ? JCS_CMYK : JCS_RGB;
    return true;
  }
  // Writes the pixels to `rgb`, [height][width][3]; `row` has room for 4 bytes of each pixel of a
  // row.
  bool read_rows(uint8_t* rgb, uint8_t* row) {
    if (setjmp(failure_.jump) != 0) return false;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      look_at_time(reinterpret_cast<j_common_ptr>(&info_));
      uint8_t* to = rgb + size_t{info_.output_scanline} * info_.output_width * 3;
      JSAMPROW target = has_ink_ ? row : to;
      jpeg_read_scanlines(&info_, &target, 1);
      if (has_ink_) convert(row, to);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  int64_t width() const { return info_.image_width; }
  int64_t height() const { return info_.image_height; }
  int orientation() const {
    for (jpeg_saved_marker_ptr m = info_.marker_list; m != nullptr; m = m->next) {
      if (m->marker != kExif || m->data_length < sizeof(kExifName) ||
          std::memcmp(m->data, kExifName, sizeof(kExifName)) != 0)
        continue;
      return exif_orientation(
          std::as_bytes(std::span(m->data, m->data_length)).subspan(sizeof(kExifName)));
    }
    return 1;
  }
  [[noreturn]] void fail() const {
    if (failure_.late) failure_.guard->fail_late();
    failure_.guard->fail(std::string("the JPEG file is damaged or not supported: ") +
                         failure_.text);
  }

 private:
  // Adobe's programs store how much of an ink is missing.
  void convert(const uint8_t* row, uint8_t* rgb) const {
    const uint8_t turned = info_.saw_Adobe_marker ? 0xff : 0;
    for (size_t x = 0; x < info_.output_width; ++x, row += 4, rgb += 3) {
      const auto white = static_cast<uint8_t>(255 - (row[3] ^ turned));
      for (size_t c = 0; c < 3; ++c)
        rgb[c] = without_ink(static_cast<uint8_t>(row[c] ^ turned), white);
    }
  }

  std::span<const std::byte> file_;
  jpeg_decompress_struct info_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  Failure failure_;
  bool has_ink_ = false;
};

}  // namespace

DecodedFile decode_jpeg(std::span<const std::byte> file, const DecodeGuard& guard) {
  JpegReader reader(file, guard);
  if (!reader.read_header()) reader.fail();
  guard.check_size(reader.width(), reader.height());
  DecodedFile result;
  result.width = reader.width();
  result.height = reader.height();
  result.orientation = reader.orientation();
  result.pixels.resize(static_cast<size_t>(result.width * result.height * 3));
  std::vector<uint8_t> row(static_cast<size_t>(result.width) * 4);
  if (!reader.read_rows(result.pixels.data(), row.data())) reader.fail();
  return result;
}

}  // namespace walsh::vision
