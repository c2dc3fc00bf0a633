// Opens matrices in FP8 and MXFP4 with any types, shapes and bytes. They must give a walsh::Error,
// or a matrix of the size that the shapes say.
#include <cstdlib>
#include <vector>

#include "walsh/error.h"
#include "weights/stored/scaled_values.h"

namespace {

// Takes bytes from the front of the input, or zeros when it is at its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  uint8_t next() {
    if (rest_.empty()) return 0;
    const uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::span<const uint8_t> rest_;
};

struct Array {
  const char* dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;

  explicit Array(Input& input) {
    constexpr struct {
      const char* name;
      size_t bytes;
    } kTypes[] = {{"F8_E4M3", 1}, {"U8", 1}, {"F8_E8M0", 1}, {"F32", 4}, {"BF16", 2}, {"F16", 2}};
    const auto& type = kTypes[input.next() % 6];
    dtype = type.name;
    size_t count = 1;
    for (int rank = input.next() % 5; rank > 0; --rank) {
      shape.push_back(input.next() % 34);
      count *= static_cast<size_t>(shape.back());
    }
    constexpr size_t kMost = size_t{1} << 16;  // a parser has checked that the file has all bytes
    if (count > kMost) {
      shape = {};
      count = 1;
    }
    data.resize(count * type.bytes);
    for (size_t i = 0; i < data.size() && !input.empty(); ++i)
      data[i] = static_cast<std::byte>(input.next());
  }
  walsh::StoredArray view() const { return {dtype, shape, data, "fuzz"}; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  Input input(bytes, size);
  const bool fp8 = input.next() % 2 == 0;
  const int64_t block_rows = input.next() % 5;
  const int64_t block_cols = block_rows == 0 ? 0 : 1 + input.next() % 5;
  const Array values(input), scales(input);
  try {
    const walsh::StoredMatrixPtr matrix =
        fp8 ? walsh::open_fp8(values.view(), scales.view(), block_rows, block_cols)
            : walsh::open_mxfp4(values.view(), scales.view());
    const walsh::Tensor tensor = matrix->load(matrix->dense(), 0, matrix->rows());
    const auto cells = static_cast<size_t>(tensor.rows * tensor.cols);
    if (tensor.data.size() != cells * (fp8 ? 4 : 2)) std::abort();
    if (cells != values.data.size() * (fp8 ? 1 : 2)) std::abort();
  } catch (const walsh::Error& e) {
    if (e.code() != walsh::ErrorCode::bad_input) std::abort();
  }
  return 0;
}
