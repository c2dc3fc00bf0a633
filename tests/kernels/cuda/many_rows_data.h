// Compares kernels for many rows with kernels for few rows, which other tests compare with the CPU:
// for tests on GPUs and on the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "gemv_data.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/rows/foreign_rows.h"
#include "kernels/cuda/rows/prepare.h"

namespace walsh::cuda {

struct ManyCase {
  int64_t width = 0;
  bool normed = false, gated = false;
  int block = 128;              // of the rotation, 0: none
  int group = 128, planes = 1;  // of int8 values, group 0: rows of `type`
  DType type = DType::f32;
  GateFunction function = GateFunction::silu;
  std::optional<DType> foreign = std::nullopt;  // the inputs are 16-bit rows

  int64_t padded() const { return block > 0 ? divide_up(width, 32) * 32 : width; }
  int64_t tiles() const { return divide_up(padded(), kPaddedColumns); }
};

class ManyRowsData {
 public:
  ManyRowsData(const ManyCase& c, int64_t m)
      : case_(c), x_(to_device(random_values(m * c.width, 31, 3))) {
    if (c.gated) up_ = to_device(random_values(m * c.width, 32));
    if (c.normed) gain_ = to_device(random_values(c.width, 33));
    if (!c.foreign) return;
    std::vector<uint16_t> bits;
    for (const float v : random_values(m * c.width, 31, 3))
      bits.push_back(*c.foreign == DType::f16 ? f32_to_f16(v) : f32_to_bf16(v));
    x_ = to_device(bits);
  }

  // Returns the bytes of each output array for rows [begin, begin + m), made in one call.
  std::vector<std::vector<std::byte>> make(int64_t begin, int64_t m) const {
    const int64_t padded = case_.padded(), stride = divide_up(padded, 8) * 8 + 8;
    InputForm form;
    form.rotation = {.kind = RotationKind::none};
    if (case_.block > 0) form.rotation = Rotation{.block = case_.block, .seed = 5};
    form.padded = padded;
    if (case_.group > 0) {
      Activations out(m, case_.tiles() * kPaddedColumns, case_.group, case_.planes);
      form.out = &out;
      prepare_rows(begin, form, m);
      return {to_host<std::byte>(out.q), to_host<std::byte>(out.scales),
              to_host<std::byte>(out.sums)};
    }
    const uint64_t bytes = case_.type == DType::f32 ? 4 : 2;
    const Buffer rows(static_cast<uint64_t>(m * stride) * bytes, true);
    form.rows = rows.as();
    form.stride = stride;
    form.row_type = case_.type;
    prepare_rows(begin, form, m);
    return {to_host<std::byte>(rows)};
  }

 private:
  void prepare_rows(int64_t begin, const InputForm& form, int64_t m) const {
    const int64_t at = begin * case_.width;
    if (case_.foreign) {
      ForeignRows source;
      source.data = x_.as<const uint16_t>() + at;
      source.type = *case_.foreign;
      source.stride = source.width = case_.width;
      return prepare(source, {&form, 1}, m, nullptr);
    }
    InputSource source;
    source.x = x_.as<float>() + at;
    source.up = case_.gated ? up_.as<float>() + at : nullptr;
    source.gain = gain_.as<float>();
    source.eps = 1e-5f;
    source.ldx = source.width = case_.width;
    source.function = case_.function;
    prepare(source, {&form, 1}, m, nullptr);
  }

  ManyCase case_;
  Buffer x_, up_, gain_;
};

// Compares one call for more rows than the device takes at a time with calls for `most` rows, which
// fill less than half of it.
inline void expect_many_rows(const ManyCase& c, int multiprocessors) {
  SCOPED_TRACE(testing::Message() << "width " << c.width << " block " << c.block << " group "
                                  << c.group << " planes " << c.planes << " normed " << c.normed
                                  << " gated " << c.gated);
  const int64_t most = std::max<int64_t>(1, (int64_t{16} * multiprocessors - 1) / c.tiles());
  const int64_t m = 2 * most + 3;
  const ManyRowsData data(c, m);
  std::vector<std::vector<std::byte>> expected;
  for (int64_t begin = 0; begin < m; begin += most) {
    const auto some = data.make(begin, std::min<int64_t>(most, m - begin));
    expected.resize(some.size());
    for (size_t i = 0; i < some.size(); ++i)
      expected[i].insert(expected[i].end(), some[i].begin(), some[i].end());
  }
  const auto got = data.make(0, m);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(got[i] == expected[i]) << "array " << i;
}

inline std::vector<ManyCase> many_cases() {
  return {
      {.width = 96, .gated = true},
      {.width = 96, .normed = true, .block = 0, .group = 32},
      {.width = 301, .normed = true},
      {.width = 40, .block = 0, .group = 0},
      {.width = 640, .normed = true, .planes = 2},
      {.width = 768, .gated = true},
      {.width = 768, .gated = true, .block = 256, .function = GateFunction::gelu_tanh},
      {.width = 768, .gated = true, .block = 256, .function = GateFunction::relu},
      {.width = 736, .gated = true, .block = 64, .group = 32},
      {.width = 768, .normed = true, .gated = true},
      {.width = 2048, .group = 128},
      {.width = 2048, .normed = true, .group = 0, .type = DType::bf16},
      {.width = 2048, .normed = true, .block = 0, .group = 0},
      {.width = 4096, .block = 256, .group = 0, .type = DType::f16},
      {.width = 2048, .foreign = DType::bf16},
      {.width = 352, .block = 32, .foreign = DType::f16},
      {.width = 2048, .block = 512},
      {.width = 5120, .normed = true},
      {.width = 8192, .normed = true, .group = 0, .type = DType::bf16},
      {.width = 8448, .normed = true},
  };
}

// Compares sums of experts of as many rows, at once and a row at a time.
inline void expect_many_sums(int64_t width, int chosen, int multiprocessors) {
  SCOPED_TRACE(testing::Message() << "width " << width << " chosen " << chosen);
  const int64_t m = divide_up(int64_t{multiprocessors} * 4096, width) + 1, slots = m * chosen;
  const Buffer results = to_device(random_values(slots * width, 41));
  const Buffer weights = to_device(random_values(slots, 42)),
               share = to_device(random_values(m, 43));
  const std::vector<float> before = random_values(m * width, 44);
  std::vector<int32_t> places;
  for (int64_t i = 0; i < slots; ++i)
    places.push_back(static_cast<int32_t>(slots - 1 - i));
  const Buffer slot = to_device(places);
  for (int kind = 0; kind < 4; ++kind) {
    const auto sums = [&](int64_t at_once) {
      const Buffer out = to_device(before), stream = to_device(before);
      for (int64_t t = 0; t < m; t += at_once) {
        ExpertSum call;
        call.results = results.as<float>();
        call.slot = slot.as<const int32_t>() + t * chosen;
        call.weights = kind == 1 ? nullptr : weights.as<float>() + t * chosen;
        call.shared = kind > 0;
        call.share = kind > 1 ? share.as<float>() + t : nullptr;
        call.out = out.as<float>() + t * width;
        call.stream = kind > 2 ? stream.as<float>() + t * width : nullptr;
        call.scale = 0.7f;
        call.m = at_once;
        call.width = width;
        call.chosen = chosen;
        sum_experts(call, nullptr);
      }
      synchronize(nullptr);
      auto both = to_host<std::byte>(out);
      const auto added = to_host<std::byte>(stream);
      both.insert(both.end(), added.begin(), added.end());
      return both;
    };
    ASSERT_TRUE(sums(m) == sums(1)) << "kind " << kind;
  }
}

}  // namespace walsh::cuda
