// Helps tests of programs on the host (include emulated/device.h first): makes matrices and inputs
// in the form that kernels take, and their plain values.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "rotate/rotation.h"
//
#include "kernels/cuda/persistent/program.h"
#include "kernels/relative_error.h"

namespace walsh::cuda {

inline constexpr float kUnit = 0.01f, kEps = 1e-5f;

// Returns a level of codes with this many bits.
inline int8_t level_of(int bits, uint32_t code) {
  const int levels = 1 << bits;
  return static_cast<int8_t>((2 * static_cast<int>(code) + 1 - levels) * 120 / levels);
}

inline std::vector<float> random_values(Random& random, int64_t count, double scale = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values)
    v = static_cast<float>(scale * random.normal());
  return values;
}

inline Buffer to_device(const std::vector<float>& values) {
  Buffer buffer(values.size() * sizeof(float));
  copy_to_device(buffer.as(), values.data(), buffer.bytes(), nullptr);
  return buffer;
}

inline int64_t padded(int64_t cols, int64_t to) {
  return (cols + to - 1) / to * to;
}

// Holds a matrix of 2, 3 or 4 bits with scales of 128 columns, as kernels and as the reference have
// it.
struct Coded {
  Matrix device;
  int bits;
  std::vector<float> levels;  // times scale and unit, [rows][cols of the matrix]

  Coded(Random& random, int64_t rows, int64_t cols, int bits_of_codes = 3) : bits(bits_of_codes) {
    Matrix& m = device;
    m.rows = rows;
    m.cols = padded(cols, kKTileColumns);
    m.group = 128;
    m.code.decoder = bits == 2   ? DecoderKind::scalar2
                     : bits == 3 ? DecoderKind::scalar3
                                 : DecoderKind::scalar4;
    m.code.unit = kUnit;
    for (uint32_t code = 0; code < 1u << bits; ++code)
      reinterpret_cast<int8_t*>(m.code.levels.words)[code] = level_of(bits, code);
    const int64_t k_tiles = m.cols / kKTileColumns, pieces = m.tiles() * k_tiles;
    m.codes = Buffer(static_cast<uint64_t>(pieces * bits) * 512);
    m.scales = Buffer(static_cast<uint64_t>(m.tiles() * m.groups() * kTileRows * 2));
    levels.resize(static_cast<size_t>(m.tiles() * kTileRows * m.cols));
    for (uint64_t i = 0; i < m.codes.bytes() / 4; ++i)
      m.codes.as<uint32_t>()[i] = static_cast<uint32_t>(random.next());
    const double scale = 3 / std::sqrt(static_cast<double>(cols));
    for (uint64_t i = 0; i < m.scales.bytes() / 2; ++i)
      m.scales.as<uint16_t>()[i] = f32_to_f16(static_cast<float>(scale * (0.5 + random.uniform())));
    for (int64_t piece = 0; piece < pieces; ++piece)
      for (int lane = 0; lane < 32; ++lane)
        decode(piece / k_tiles, piece % k_tiles, lane);
  }

  // Decodes a lane's words of a k-tile (weights/matrix.h).
  void decode(int64_t tile, int64_t k_tile, int lane) {
    const int g = lane / 4, t = lane % 4;
    const auto* codes = device.codes.as<uint32_t>() + (tile * k_tiles() + k_tile) * bits * 128;
    uint32_t words[16];
    for (int w = 0; w < 4 * bits; ++w)
      words[w] = codes[w / 4 * 128 + lane * 4 + w % 4];
    for (int part = 0; part < 4; ++part) {
      const int chunk = part / 2, half = part % 2;
      const uint32_t* own = words + bits * part;
      const int64_t group = k_tile * 2 + chunk, row = tile * kTileRows + g + 8 * half;
      const uint16_t scale =
          device.scales.as<uint16_t>()[(tile * device.groups() + group) * 16 + g * 2 + half];
      for (int at = 0; at < 32; ++at) {
        const int i = at / 8, r = at % 8;
        const uint32_t code = code_of(own, i, r);
        const int64_t column = group * 128 + 32 * i + 8 * t + r;
        levels[static_cast<size_t>(row * device.cols + column)] =
            static_cast<float>(level_of(bits, code)) * kUnit * f16_to_f32(scale);
      }
    }
  }

  // Returns code r of block i of a row in its words.
  uint32_t code_of(const uint32_t* words, int i, int r) const {
    if (bits == 2) return words[i / 2] >> (4 * r + 2 * (i % 2)) & 3;
    if (bits == 4 || i < 3) return words[i] >> (4 * r) & (bits == 4 ? 15 : 7);
    uint32_t code = 0;
    for (int b = 0; b < 3; ++b)
      code |= (words[b] >> (4 * r + 3) & 1) << b;
    return code;
  }

  int64_t k_tiles() const { return device.cols / kKTileColumns; }

  std::vector<double> times(const std::vector<float>& x) const {
    std::vector<double> y(static_cast<size_t>(device.rows));
    for (int64_t row = 0; row < device.rows; ++row)
      for (size_t c = 0; c < x.size(); ++c)
        y[static_cast<size_t>(row)] +=
            double{levels[static_cast<size_t>(row * device.cols) + c]} * x[c];
    return y;
  }
};

// Holds a form of an input that is rotated in blocks of 128.
struct Form {
  Activations out;
  InputForm form;

  Form(int64_t cols, uint32_t seed, int64_t rows = 1) {
    out.cols = padded(cols, kKTileColumns);
    out.max_m = rows;
    form.rotation = {RotationKind::hadamard, 128, seed, true};
    form.padded = padded(cols, 32);
  }

  // Returns it for a program, while this stays where it is.
  InputForm described() {
    form.out = &out;
    return form;
  }

  // Returns the rotated values as int8 ones times their scales.
  std::vector<float> of(std::vector<float> x) const {
    x.resize(static_cast<size_t>(form.padded));
    Rotator(form.rotation, form.padded).apply(x.data());
    x.resize(static_cast<size_t>(out.cols));
    for (size_t begin = 0; begin < x.size(); begin += 128) {
      float largest = 0;
      for (size_t i = begin; i < begin + 128; ++i)
        largest = std::max(largest, std::fabs(x[i]));
      const float scale = largest / 127.0f;
      for (size_t i = begin; i < begin + 128 && largest > 0; ++i)
        x[i] = std::nearbyint(x[i] * (127.0f / largest)) * scale;
    }
    return x;
  }
};

inline std::vector<float> normed(const std::vector<float>& x, const std::vector<float>& gain) {
  double squares = 0;
  for (const float v : x)
    squares += double{v} * v;
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(x.size()) + double{kEps});
  std::vector<float> out;
  for (size_t i = 0; i < x.size(); ++i)
    out.push_back(static_cast<float>(x[i] * gain[i] * inverse));
  return out;
}

inline Matmul product_of(const Coded& matrix, const Form& form) {
  Matmul product;
  product.pass[0] = &matrix.device;
  product.input[0] = &form.out;
  product.ldy = matrix.device.rows;
  return product;
}

inline void add(std::vector<float>& x, const std::vector<double>& y, double weight) {
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(x[i] + weight * y[i]);
}

// Errors are some 1e-7, but for values that are rounded to another int8 where it is close: then
// below 1e-2.
inline constexpr double kRounding = 0.02;

}  // namespace walsh::cuda
