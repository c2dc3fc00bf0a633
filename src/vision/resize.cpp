#include "vision/resize.h"

#include <algorithm>
#include <cmath>

namespace walsh::vision {
namespace {

// Says for each new value which old ones it is the weighted sum of: value i begins at first[i].
struct Windows {
  std::vector<int64_t> first, count;
  std::vector<int32_t> weights;  // their shape is [new values][most]
  int64_t most = 0;
  int shift = 0;
};

double weigh(Filter filter, double x) {
  x = std::abs(x);
  if (filter == Filter::bilinear) return x < 1 ? 1 - x : 0;
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

Windows make_windows(int64_t from, int64_t to, Filter filter) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double widened = std::max(scale, 1.0);
  const double support = (filter == Filter::bilinear ? 1 : 2) * widened;
  Windows w;
  w.most = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  std::vector<double> weights(static_cast<size_t>(to * w.most));
  double largest = 0;
  for (int64_t i = 0; i < to; ++i) {
    const double center = scale * (static_cast<double>(i) + 0.5);
    const int64_t begin = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t end = std::min(static_cast<int64_t>(center + support + 0.5), from);
    const int64_t count = std::clamp<int64_t>(end - begin, 0, w.most);
    double* row = weights.data() + i * w.most;
    double total = 0;
    for (int64_t k = 0; k < count; ++k) {
      row[k] = weigh(filter, (static_cast<double>(k + begin) - center + 0.5) / widened);
      total += row[k];
    }
    for (int64_t k = 0; k < count; ++k) {
      if (total != 0) row[k] /= total;
      largest = std::max(largest, row[k]);
    }
    w.first.push_back(begin);
    w.count.push_back(count);
  }
  // The weights get as many bits as leave the largest one within 16 bits.
  while (w.shift < 22 && static_cast<int>(0.5 + largest * (1 << (w.shift + 1))) < (1 << 15))
    ++w.shift;
  w.weights.reserve(weights.size());
  for (const double value : weights) {
    const double scaled = value * (1 << w.shift);
    w.weights.push_back(static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5));
  }
  return w;
}

uint8_t rounded(int32_t sum, int shift) {
  return static_cast<uint8_t>(std::clamp(sum >> shift, 0, 255));
}

Image resize_columns(const Image& image, const Windows& w) {
  const auto width = static_cast<int64_t>(w.first.size());
  Image result{width, image.height,
               std::vector<uint8_t>(static_cast<size_t>(width * image.height * 3))};
  const int32_t half = w.shift > 0 ? 1 << (w.shift - 1) : 0;
  uint8_t* to = result.rgb.data();
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* row = image.rgb.data() + y * image.width * 3;
    for (size_t x = 0; x < w.first.size(); ++x, to += 3) {
      const int32_t* weights = w.weights.data() + static_cast<int64_t>(x) * w.most;
      const uint8_t* from = row + w.first[x] * 3;
      int32_t sums[3] = {half, half, half};
      for (int64_t k = 0; k < w.count[x]; ++k, from += 3)
        for (int c = 0; c < 3; ++c)
          sums[c] += weights[k] * from[c];
      for (int c = 0; c < 3; ++c)
        to[c] = rounded(sums[c], w.shift);
    }
  }
  return result;
}

Image resize_rows(const Image& image, const Windows& w) {
  const auto height = static_cast<int64_t>(w.first.size());
  const int64_t row = image.width * 3;
  Image result{image.width, height, std::vector<uint8_t>(static_cast<size_t>(height * row))};
  const int32_t half = w.shift > 0 ? 1 << (w.shift - 1) : 0;
  std::vector<int32_t> sums(static_cast<size_t>(row));
  uint8_t* to = result.rgb.data();
  for (size_t y = 0; y < w.first.size(); ++y) {
    const int32_t* weights = w.weights.data() + static_cast<int64_t>(y) * w.most;
    std::fill(sums.begin(), sums.end(), half);
    const uint8_t* from = image.rgb.data() + w.first[y] * row;
    for (int64_t k = 0; k < w.count[y]; ++k, from += row)
      for (size_t i = 0; i < sums.size(); ++i)
        sums[i] += weights[k] * from[i];
    for (const int32_t sum : sums)
      *to++ = rounded(sum, w.shift);
  }
  return result;
}

}  // namespace

Image resize_image(const Image& image, int64_t width, int64_t height, Filter filter) {
  Image result = width == image.width
                     ? image
                     : resize_columns(image, make_windows(image.width, width, filter));
  if (height == image.height) return result;
  return resize_rows(result, make_windows(image.height, height, filter));
}

}  // namespace walsh::vision
