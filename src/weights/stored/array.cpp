#include "weights/stored/array.h"

#include <algorithm>

#include "base/half.h"
#include "base/small_floats.h"
#include "walsh/error.h"

namespace walsh {
namespace {

struct FloatType {
  std::string_view name;
  float (*value)(std::span<const std::byte> data, size_t index);
};

constexpr FloatType kFloatTypes[] = {
    {"F32", [](std::span<const std::byte> data, size_t i) { return value_at<float>(data, i); }},
    {"BF16", [](auto data, size_t i) { return bf16_to_f32(value_at<uint16_t>(data, i)); }},
    {"F16", [](auto data, size_t i) { return f16_to_f32(value_at<uint16_t>(data, i)); }},
    {"F8_E8M0", [](auto data, size_t i) { return e8m0_to_f32(value_at<uint8_t>(data, i)); }},
    {"F8_E4M3", [](auto data, size_t i) { return e4m3_to_f32(value_at<uint8_t>(data, i)); }},
};

const FloatType& float_type(const StoredArray& array) {
  const auto* type = std::ranges::find(kFloatTypes, array.dtype, &FloatType::name);
  if (type == std::end(kFloatTypes))
    refuse_array(array, "values in F32, BF16, F16, F8_E8M0 or F8_E4M3");
  return *type;
}

}  // namespace

std::string shape_text(std::span<const int64_t> shape) {
  std::string result = "[";
  for (const int64_t size : shape)
    result += (result.size() > 1 ? ", " : "") + std::to_string(size);
  return result + "]";
}

void refuse_array(const StoredArray& array, const std::string& expected) {
  throw Error(ErrorCode::bad_input, array.where,
              "found " + std::string(array.dtype) + " " + shape_text(array.shape) + ", expected " +
                  expected);
}

bool has_shape(const StoredArray& array, std::initializer_list<int64_t> shape) {
  return std::ranges::equal(array.shape, shape);
}

void expect_array(const StoredArray& array, std::string_view dtype,
                  std::initializer_list<int64_t> shape) {
  if (array.dtype != dtype || !has_shape(array, shape))
    refuse_array(array, std::string(dtype) + " " + shape_text({shape.begin(), shape.size()}));
}

void expect_matrix(const StoredArray& array, std::string_view dtype) {
  if (array.dtype != dtype || array.shape.size() != 2 || array.data.empty())
    refuse_array(array, "a matrix in " + std::string(dtype) + " that is not empty");
}

void expect_floats(const StoredArray& array) {
  float_type(array);
}

void read_floats(const StoredArray& array, int64_t first, int64_t count, float* out) {
  const FloatType& type = float_type(array);
  for (int64_t i = 0; i < count; ++i)
    out[i] = type.value(array.data, static_cast<size_t>(first + i));
}

std::vector<float> read_floats(const StoredArray& array) {
  size_t count = 1;
  for (const int64_t size : array.shape)
    count *= static_cast<size_t>(size);
  std::vector<float> values(array.data.empty() ? 0 : count);
  read_floats(array, 0, static_cast<int64_t>(values.size()), values.data());
  return values;
}

}  // namespace walsh
