#include "weights/stored/integers.h"

#include <algorithm>
#include <cmath>

#include "base/aligned.h"
#include "base/half.h"

namespace walsh {
namespace {

constexpr int64_t kRows = 16;   // this many rows are read together
constexpr int64_t kBlock = 32;  // a scale of q4_0 and q8_0 is for this many columns

bool is_half(float value) {
  return std::isfinite(value) && std::fabs(value) <= kLargestHalf &&
         f16_to_f32(f32_to_f16(value)) == value;
}

}  // namespace

template <typename Use>
void IntegerMatrix::for_rows(int64_t first, int64_t count, bool codes, Use use) const {
  const auto groups = static_cast<size_t>(layout_.groups), cols = static_cast<size_t>(this->cols());
  const auto most = static_cast<size_t>(std::min(kRows, count));
  std::vector<uint8_t> code(codes ? most * cols : 0);
  std::vector<float> scale(most * groups);
  std::vector<int16_t> zero(most * groups, static_cast<int16_t>(layout_.zero));
  for (int64_t begin = first; begin < first + count; begin += kRows) {
    const int64_t rows = std::min(kRows, first + count - begin);
    if (codes) read_codes(begin, rows, code.data());
    read_groups(begin, rows, scale.data(), zero.data());
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
      use(begin + static_cast<int64_t>(r), code.data() + (codes ? r * cols : 0),
          scale.data() + r * groups, zero.data() + r * groups);
  }
}

void IntegerMatrix::decode(int64_t first, int64_t count, std::byte* out) const {
  auto* to = reinterpret_cast<float*>(out);
  const int64_t per_group = layout_.group_cols;
  const auto value = [](uint8_t code, float scale, int16_t zero) {
    return static_cast<float>(code - zero) * scale;
  };
  for_rows(first, count, true,
           [&](int64_t, const uint8_t* codes, const float* scales, const int16_t* zeros) {
             if (!layout_.group_of.empty()) {
               for (const int32_t g : layout_.group_of)
                 *to++ = value(*codes++, scales[g], zeros[g]);
               return;
             }
             for (int64_t g = 0, c = 0; g < layout_.groups; ++g)
               for (const int64_t end = std::min(cols(), c + per_group); c < end; ++c)
                 *to++ = value(codes[c], scales[g], zeros[g]);
           });
}

const Format* IntegerMatrix::coded() const {
  if (!layout_.group_of.empty() || cols() % kBlock != 0) return nullptr;
  if (layout_.groups > 1 && layout_.group_cols % kBlock != 0) return nullptr;
  int lowest = layout_.zero, highest = layout_.zero;  // All zero points lie between these.
  bool exact = true, begun = false;
  for_rows(0, rows(), false,
           [&](int64_t, const uint8_t*, const float* scales, const int16_t* zeros) {
             const auto [low, high] = std::minmax_element(zeros, zeros + layout_.groups);
             lowest = begun ? std::min<int>(lowest, *low) : *low;
             highest = begun ? std::max<int>(highest, *high) : *high;
             begun = true;
             exact = exact && std::all_of(scales, scales + layout_.groups, is_half);
           });
  const int least = -highest, most = (1 << layout_.bits) - 1 - lowest;
  if (!exact || least < -128 || most > 127) return nullptr;
  return &get_format(least >= -8 && most <= 7 ? "q4_0" : "q8_0");
}

Tensor IntegerMatrix::encode(const Format& format, int64_t first, int64_t count) const {
  const ScalarCode& code = format.code[0];
  const int64_t blocks = cols() / kBlock, row_bytes = code_bytes_per_row(code, cols());
  const int64_t per_group = layout_.group_cols / kBlock;
  const int shift = code.bits == 4 ? 8 : 0;  // this code has the level 0
  auto memory = std::make_shared<AlignedArray<std::byte>>(
      static_cast<size_t>(count * (row_bytes + blocks * 2)));
  std::byte* to = memory->data();
  std::byte* scale_to = to + count * row_bytes;
  std::vector<uint8_t> row(static_cast<size_t>(cols()));
  for_rows(first, count, true,
           [&](int64_t, const uint8_t* codes, const float* scales, const int16_t* zeros) {
             for (int64_t b = 0; b < blocks; ++b) {
               const int64_t g = layout_.groups == 1 ? 0 : b / per_group;
               for (int64_t c = b * kBlock; c < (b + 1) * kBlock; ++c)
                 row[static_cast<size_t>(c)] = static_cast<uint8_t>(codes[c] - zeros[g] + shift);
               const uint16_t half = f32_to_f16(scales[g]);
               std::memcpy(scale_to, &half, sizeof half);
               scale_to += sizeof half;
             }
             pack_codes(code, row.data(), cols(), to);
             to += row_bytes;
           });
  Tensor tensor;
  tensor.format = &format;
  tensor.rows = count;
  tensor.cols = cols();
  for (Rotation& rotation : tensor.rotation)
    rotation = {RotationKind::none, kBlock, 0, false};
  tensor.pass[0].codes = {memory->data(), static_cast<size_t>(count * row_bytes)};
  tensor.pass[0].scales = {memory->data() + count * row_bytes,
                           static_cast<size_t>(count * blocks * 2)};
  tensor.owner = std::move(memory);
  return tensor;
}

std::vector<int32_t> read_group_index(const StoredParts& parts, std::string_view ending,
                                      int64_t cols, int64_t groups, int64_t group_cols) {
  const auto array = parts.find(ending);
  if (!array) return {};
  expect_array(*array, "I32", {cols});
  std::vector<int32_t> index(static_cast<size_t>(cols));
  std::memcpy(index.data(), array->data.data(), array->data.size());
  if (std::ranges::all_of(index, [](int32_t g) { return g == -1; })) return {};
  for (const int32_t g : index) {
    if (g < 0 || g >= groups)
      throw Error(
          ErrorCode::bad_input, array->where,
          "holds the group " + std::to_string(g) + ", expected 0 to " + std::to_string(groups - 1));
  }
  int64_t ordered = 0;
  while (ordered < cols && index[static_cast<size_t>(ordered)] == ordered / group_cols)
    ++ordered;
  return ordered == cols ? std::vector<int32_t>() : index;
}

}  // namespace walsh
