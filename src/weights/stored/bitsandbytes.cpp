// Reads weights of bitsandbytes (https://github.com/bitsandbytes-foundation/bitsandbytes). They are
// levels of a table times the largest value of a block of consecutive weights (nf4, fp4), or int8
// times a scale per row.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "codec/panels.h"
#include "io/json.h"
#include "weights/stored/integers.h"

namespace walsh {
namespace {

constexpr std::string_view kWeight = ".weight", kNf4 = ".weight.quant_state.bitsandbytes__nf4",
                           kFp4 = ".weight.quant_state.bitsandbytes__fp4",
                           kAbsmax = ".weight.absmax", kMap = ".weight.quant_map",
                           kNestedAbsmax = ".weight.nested_absmax",
                           kNestedMap = ".weight.nested_quant_map", kRowScales = ".SCB",
                           kOrder = ".weight_format";

constexpr int64_t kMost = int64_t{1} << 40;  // a matrix may have this many weights

// Keeps the content of the JSON text in a tensor of bytes.
struct State {
  int64_t rows = 0, cols = 0, block = 0, nested_block = 0;
  float offset = 0;
  DType dtype = DType::f32;
};

DType read_dtype(const Json& json, const std::string& where) {
  const std::string text = get_string(json, "dtype", where);
  for (const auto& [name, dtype] :
       {std::pair{"float32", DType::f32}, {"float16", DType::f16}, {"bfloat16", DType::bf16}})
    if (text == name) return dtype;
  throw Error(ErrorCode::bad_input, where, "has the dtype " + text + ", which is not read");
}

State read_state(const StoredArray& array, bool nested) {
  if (array.dtype != "U8" || array.shape.size() != 1) refuse_array(array, "U8 of one dimension");
  const Json json = parse_json(
      {reinterpret_cast<const char*>(array.data.data()), array.data.size()}, array.where);
  State state;
  const Json& shape = get_array(json, "shape", array.where);
  const auto is_size = [](const Json& size) {
    return size.is_number_unsigned() && size > 0 && size < (int64_t{1} << 31);
  };
  if (shape.size() != 2 || !is_size(shape[0]) || !is_size(shape[1]))
    throw Error(ErrorCode::bad_input, array.where, "'shape' is not that of a matrix");
  state.rows = shape[0].get<int64_t>();
  state.cols = shape[1].get<int64_t>();
  if (state.rows > kMost / state.cols)
    throw Error(ErrorCode::bad_input, array.where, "'shape' is too large");
  state.block = get_int(json, "blocksize", array.where, 1, int64_t{1} << 30);
  state.dtype = read_dtype(json, array.where);
  if (nested) {
    state.nested_block = get_int(json, "nested_blocksize", array.where, 1, int64_t{1} << 30);
    const double offset = get_number(json, "nested_offset", array.where);
    if (std::fabs(offset) > std::numeric_limits<float>::max())
      throw Error(ErrorCode::bad_input, array.where, "'nested_offset' is too large for a float");
    state.offset = static_cast<float>(offset);
  }
  return state;
}

void expect_values(const StoredArray& array, std::string_view dtype, int64_t count) {
  if (array.dtype != dtype || !has_shape(array, {count}))
    refuse_array(array, std::string(dtype) + " " + shape_text(std::array{count}));
}

class FourBits : public StoredMatrix {
 public:
  FourBits(const State& state, StoredArray codes, std::vector<float> map, StoredArray absmax,
           std::vector<float> nested_map, std::vector<float> nested_absmax)
      : StoredMatrix(state.rows, state.cols, state.dtype),
        state_(state),
        codes_(std::move(codes)),
        map_(std::move(map)),
        absmax_(std::move(absmax)),
        nested_map_(std::move(nested_map)),
        nested_absmax_(std::move(nested_absmax)) {}

 private:
  float absmax(int64_t block) const {
    const auto at = static_cast<size_t>(block);
    if (nested_map_.empty()) return value_at<float>(absmax_.data, at);
    const float largest = nested_absmax_[at / static_cast<size_t>(state_.nested_block)];
    return nested_map_[static_cast<uint8_t>(absmax_.data[at])] * largest + state_.offset;
  }

  void decode(int64_t first, int64_t count, std::byte* out) const override {
    int64_t at = first * cols();
    for (const int64_t end = at + count * cols(); at < end;) {
      const int64_t block_end = std::min(end, (at / state_.block + 1) * state_.block);
      const float largest = absmax(at / state_.block);
      for (; at < block_end; ++at) {
        const auto pair = static_cast<uint8_t>(codes_.data[static_cast<size_t>(at / 2)]);
        const float value = map_[at % 2 == 0 ? pair >> 4 : pair & 15] * largest;
        out = write(value, out);
      }
    }
  }

  std::byte* write(float value, std::byte* out) const {
    if (state_.dtype == DType::f32) {
      std::memcpy(out, &value, sizeof value);
      return out + sizeof value;
    }
    const uint16_t half = state_.dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(out, &half, sizeof half);
    return out + sizeof half;
  }

  State state_;
  StoredArray codes_;
  std::vector<float> map_;
  StoredArray absmax_;
  std::vector<float> nested_map_, nested_absmax_;
};

StoredMatrixPtr open_four_bits(const StoredParts& parts, std::string_view state_name) {
  const bool nested = parts.contains(kNestedAbsmax);
  const StoredArray codes = parts.get(kWeight), map = parts.get(kMap), absmax = parts.get(kAbsmax);
  const State state = read_state(parts.get(state_name), nested);
  const int64_t weights = state.rows * state.cols, blocks = ceil_div(weights, state.block);
  if (static_cast<int64_t>(codes.data.size()) != (weights + 1) / 2)
    refuse_array(codes, std::to_string((weights + 1) / 2) + " bytes of a matrix " +
                            shape_text(std::array{state.rows, state.cols}));
  expect_values(map, "F32", 16);
  expect_values(absmax, nested ? "U8" : "F32", blocks);
  std::vector<float> nested_map, nested_absmax;
  if (nested) {
    const StoredArray levels = parts.get(kNestedMap), largest = parts.get(kNestedAbsmax);
    expect_values(levels, "F32", 256);
    expect_values(largest, "F32", ceil_div(blocks, state.nested_block));
    nested_map = read_floats(levels);
    nested_absmax = read_floats(largest);
  }
  return std::make_unique<FourBits>(state, codes, read_floats(map), absmax, std::move(nested_map),
                                    std::move(nested_absmax));
}

class Int8Rows : public IntegerMatrix {
 public:
  Int8Rows(IntegerLayout layout, StoredArray codes, StoredArray scales)
      : IntegerMatrix(std::move(layout)), codes_(std::move(codes)), scales_(std::move(scales)) {}

 private:
  void read_codes(int64_t first, int64_t count, uint8_t* out) const override {
    for (int64_t i = 0; i < count * cols(); ++i)
      out[i] = value_at<uint8_t>(codes_.data, static_cast<size_t>(first * cols() + i)) ^ 0x80;
  }
  void read_groups(int64_t first, int64_t count, float* scales, int16_t*) const override {
    for (int64_t r = 0; r < count; ++r)
      scales[r] = value_at<float>(scales_.data, static_cast<size_t>(first + r)) / 127;
  }

  StoredArray codes_, scales_;
};

StoredMatrixPtr open_int8(const StoredParts& parts, const StoredMethod&) {
  const StoredArray codes = parts.get(kWeight), scales = parts.get(kRowScales);
  expect_matrix(codes, "I8");
  IntegerLayout layout;
  layout.rows = codes.shape[0];
  layout.cols = layout.group_cols = codes.shape[1];
  layout.groups = 1;
  layout.bits = 8;
  layout.zero = 128;
  expect_values(scales, "F32", layout.rows);
  const auto order = parts.find(kOrder);
  if (order && std::ranges::any_of(order->data, [](std::byte b) { return b != std::byte{0}; }))
    refuse_array(*order, "0: rows in their order");
  return std::make_unique<Int8Rows>(std::move(layout), codes, scales);
}

constexpr StoredNames kForms[] = {
    {kWeight, kWeight, "", kNf4,
     [](const StoredParts& parts, const StoredMethod&) { return open_four_bits(parts, kNf4); }},
    {kWeight, kWeight, "", kFp4,
     [](const StoredParts& parts, const StoredMethod&) { return open_four_bits(parts, kFp4); }},
    {kWeight, kWeight, "I8", "", open_int8},
};
constexpr std::string_view kUnseen[] = {kNf4,          kFp4,       kAbsmax,    kMap,
                                        kNestedAbsmax, kNestedMap, kRowScales, kOrder};

}  // namespace

constinit const StoredKind kStoredBnb = {
    StoredMethod::Kind::bnb, "bitsandbytes", true, true, kForms, kUnseen};

}  // namespace walsh
