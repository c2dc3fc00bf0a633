#include "vision/preprocess.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "walsh/error.h"

namespace walsh::vision {
namespace {

constexpr int64_t kMaxSide = 1 << 16;
constexpr double kMaxAspect = 200;              // Sizing::area allows sides of this ratio
constexpr int64_t kBilinear = 2, kBicubic = 3;  // these are Pillow's numbers

void read_colours(const Json& object, const char* key, const std::string& where, float (&to)[3]) {
  const Json* list = find_array(object, key, where);
  if (list == nullptr) return;
  if (list->size() != 3 || !std::ranges::all_of(*list, [](const Json& v) { return v.is_number(); }))
    throw Error(ErrorCode::bad_input, where, fmt::format("'{}' has to be three numbers", key));
  for (size_t c = 0; c < 3; ++c)
    to[c] = (*list)[c].get<float>();
}

void read_size(const Json& object, PreprocessRule& rule, const std::string& where) {
  constexpr int64_t kMost = int64_t{1} << 40;
  // Files of earlier versions have these keys beside `size`.
  if (rule.sizing == Sizing::area) {
    rule.min_pixels = find_int(object, "min_pixels", where, 1, kMost).value_or(rule.min_pixels);
    rule.max_pixels = find_int(object, "max_pixels", where, 1, kMost).value_or(rule.max_pixels);
  }
  const Json* size = find_object(object, "size", where);
  if (size == nullptr) return;
  const std::string place = where + ": size";
  const auto longest = find_int(*size, "longest_edge", place, 1, kMost);
  const auto height = find_int(*size, "height", place, 1, kMaxSide);
  const auto width = find_int(*size, "width", place, 1, kMaxSide);
  if (rule.sizing == Sizing::area) {
    rule.min_pixels = find_int(*size, "shortest_edge", place, 1, kMost).value_or(rule.min_pixels);
    rule.max_pixels = longest.value_or(rule.max_pixels);
  } else if (height && width) {
    rule.height = *height;
    rule.width = *width;
  } else if (rule.sizing == Sizing::box && longest && *longest <= kMaxSide) {
    rule.height = rule.width = *longest;
  } else {
    throw Error(ErrorCode::bad_input, place, "the keys of this size are not supported");
  }
}

}  // namespace

void set_normalization(PreprocessRule& rule, const float (&mean)[3], const float (&deviation)[3]) {
  for (size_t c = 0; c < 3; ++c) {
    rule.mean[c] = mean[c] * 255;
    rule.deviation[c] = deviation[c] * 255;
  }
}

PreprocessRule read_preprocess(const Json& object, PreprocessRule rule, const std::string& where) {
  for (const char* key : {"do_center_crop", "do_pan_and_scan"}) {
    if (find_bool(object, key, where).value_or(false))
      throw Error(ErrorCode::bad_input, where, fmt::format("'{}' is not supported", key));
  }
  read_size(object, rule, where);
  rule.resize = find_bool(object, "do_resize", where).value_or(true);
  if (const auto filter = find_int(object, "resample", where)) {
    if (*filter != kBilinear && *filter != kBicubic) {
      throw Error(ErrorCode::bad_input, where,
                  fmt::format("'resample' is {}, expected 2 (bilinear) or 3 (bicubic)", *filter));
    }
    rule.filter = *filter == kBilinear ? Filter::bilinear : Filter::bicubic;
  }
  float mean[3], deviation[3];
  for (size_t c = 0; c < 3; ++c) {
    mean[c] = rule.mean[c] / 255;
    deviation[c] = rule.deviation[c] / 255;
  }
  read_colours(object, "image_mean", where, mean);
  read_colours(object, "image_std", where, deviation);
  const bool normalized = find_bool(object, "do_normalize", where).value_or(true);
  const bool scaled = find_bool(object, "do_rescale", where).value_or(true);
  const double factor = find_number(object, "rescale_factor", where, 1e-9, 1e9).value_or(1.0 / 255);
  const float scale = scaled ? static_cast<float>(1 / factor) : 1.0F;
  for (size_t c = 0; c < 3; ++c) {
    if (normalized && !(deviation[c] > 0))
      throw Error(ErrorCode::bad_input, where, "'image_std' has to be positive");
    rule.mean[c] = normalized ? mean[c] * scale : 0;
    rule.deviation[c] = normalized ? deviation[c] * scale : scale;
  }
  return rule;
}

ImageSize resized(const PreprocessRule& rule, ImageSize size, const std::string& where) {
  const auto divided = [&](int64_t side) { return (side + rule.step - 1) / rule.step * rule.step; };
  if (!rule.resize) {
    if (size.height % rule.step != 0 || size.width % rule.step != 0) {
      throw Error(ErrorCode::bad_input, where,
                  fmt::format("the model takes images as they are, and {} x {} pixels are no "
                              "multiples of {}",
                              size.width, size.height, rule.step));
    }
    return size;
  }
  if (rule.sizing == Sizing::fixed) return {rule.height, rule.width};
  const auto h = static_cast<double>(size.height), w = static_cast<double>(size.width);
  if (rule.sizing == Sizing::box) {
    const double ratio =
        std::max(h / static_cast<double>(rule.height), w / static_cast<double>(rule.width));
    if (ratio > 1) {
      size.height = std::max<int64_t>(1, static_cast<int64_t>(std::floor(h / ratio)));
      size.width = std::max<int64_t>(1, static_cast<int64_t>(std::floor(w / ratio)));
    }
    return {divided(size.height), divided(size.width)};
  }
  if (std::max(h, w) / std::min(h, w) > kMaxAspect) {
    throw Error(ErrorCode::bad_input, where,
                fmt::format("the image has {} x {} pixels, expected sides whose ratio is at most "
                            "{}",
                            size.width, size.height, kMaxAspect));
  }
  const auto step = static_cast<double>(rule.step);
  const auto times = [&](double count) { return static_cast<int64_t>(count) * rule.step; };
  // Halves are rounded to even, as Python does.
  ImageSize result = {times(std::nearbyint(h / step)), times(std::nearbyint(w / step))};
  if (result.height * result.width > rule.max_pixels) {
    const double beta = std::sqrt(h * w / static_cast<double>(rule.max_pixels));
    result.height = std::max(rule.step, times(std::floor(h / beta / step)));
    result.width = std::max(rule.step, times(std::floor(w / beta / step)));
  } else if (result.height * result.width < rule.min_pixels) {
    const double beta = std::sqrt(static_cast<double>(rule.min_pixels) / (h * w));
    result.height = times(std::ceil(h * beta / step));
    result.width = times(std::ceil(w * beta / step));
  }
  return result;
}

Rows make_patches(const Image& image, const PreprocessRule& rule, int64_t side,
                  const std::string& where) {
  const ImageSize size = resized(rule, {image.height, image.width}, where);
  const Image pixels = resize_image(image, size.width, size.height, rule.filter);
  Rows grid(size.height / side, size.width / side, 3 * side * side);
  float* to = grid.values.data();
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t column = 0; column < grid.columns; ++column) {
      for (int c = 0; c < 3; ++c) {
        for (int64_t y = row * side; y < (row + 1) * side; ++y) {
          const uint8_t* from = pixels.rgb.data() + (y * size.width + column * side) * 3 + c;
          for (int64_t x = 0; x < side; ++x, from += 3)
            *to++ = (static_cast<float>(*from) - rule.mean[c]) / rule.deviation[c];
        }
      }
    }
  }
  return grid;
}

}  // namespace walsh::vision
