// Checks and reads the bytes of a file's tensors, for readers of quantized checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace walsh {

// Returns a shape as messages spell it, such as "[2, 3]".
std::string shape_text(std::span<const int64_t> shape);

// Describes one tensor of a file. It refers to the file's memory.
struct StoredArray {
  std::string_view dtype;  // this is safetensors' name of the type
  std::span<const int64_t> shape;
  std::span<const std::byte> data;  // it is as long as type and shape say
  std::string where;                // messages name the tensor by this
};

// Throws bad_input with the message "found TYPE SHAPE, expected ...".
[[noreturn]] void refuse_array(const StoredArray& array, const std::string& expected);
// Refuses other types and shapes.
void expect_array(const StoredArray& array, std::string_view dtype,
                  std::initializer_list<int64_t> shape);
bool has_shape(const StoredArray& array, std::initializer_list<int64_t> shape);
// Refuses everything but a matrix of this type that is not empty.
void expect_matrix(const StoredArray& array, std::string_view dtype);

// Reads values in F32, BF16, F16, F8_E8M0 or F8_E4M3. Refuses other types.
std::vector<float> read_floats(const StoredArray& array);
void expect_floats(const StoredArray& array);  // it refuses those types
// Reads `count` values from the one at `first` on, which must be there, of a tensor that
// expect_floats takes.
void read_floats(const StoredArray& array, int64_t first, int64_t count, float* out);

// Returns the value at `index`; data may lie at any alignment.
template <typename T>
T value_at(std::span<const std::byte> data, size_t index) {
  T value;
  std::memcpy(&value, data.data() + index * sizeof value, sizeof value);
  return value;
}

}  // namespace walsh
