#include "import/gguf_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/aligned.h"
#include "base/half.h"
#include "import/ggml_blocks.h"
#include "import/gguf_order.h"
#include "io/gguf_types.h"
#include "walsh/error.h"

namespace walsh {
namespace {

bool is_dense(const TensorInfo& info) {
  return ggml_type_info(info.gguf->type)->block == 1;
}

// Returns the format of a matrix whose codes are kept, or null. Codes are stored in blocks along a
// row, so columns cannot be permuted or transposed.
const Format* code_format(const TensorInfo& info, GgufCodes codes) {
  const bool in_place = info.shape.size() >= 2 &&
                        !info.name.ends_with(".linear_attn.out_proj.weight") &&
                        !info.name.ends_with(".self_attn.k_b_proj.weight");
  return in_place ? gguf_code_format(info.gguf->type, codes) : nullptr;
}

// Returns whether a tensor's values differ from those in the file. They are then read as float32.
bool is_computed(const TensorInfo& info) {
  return info.gguf->offset != 0 || info.name.ends_with(".A_log");
}

// Reads the rows of a tensor in the checkpoint's order, also where it holds several matrices.
class Rows {
 public:
  Rows(const Checkpoint& checkpoint, const TensorInfo& info)
      : data_(checkpoint.data(info)),
        rows_(info.elements() / info.shape.back()),
        cols_(info.shape.back()),
        paired_heads_(info.gguf->paired_heads),
        type_(info.gguf->type),
        order_(gguf_order(checkpoint, info)) {
    // A vector may have one value per row of a matrix, such as a bias.
    const bool has_rows = paired_heads_ != 0 || (order_.key_heads != 0 && !order_.columns);
    if (info.shape.size() == 1 && has_rows) {
      if (ggml_type_info(info.gguf->type)->block != 1) {
        throw Error(ErrorCode::bad_input, info.where(),
                    "is a vector of type " + info.dtype_text + ", expected floating point");
      }
      std::swap(rows_, cols_);
    }
    if (paired_heads_ != 0 && rows_ % (2 * paired_heads_) != 0) {
      throw Error(ErrorCode::bad_input, info.where(),
                  fmt::format("{} rows, expected an even number for each of {} heads", rows_,
                              paired_heads_));
    }
  }

  int64_t cols() const { return cols_; }
  const GgufOrder& order() const { return order_; }
  // Returns whether the file's rows are the checkpoint's.
  bool is_plain() const { return paired_heads_ == 0 && !order_.changes(); }
  size_t bytes() const { return data_.size() / static_cast<size_t>(rows_); }
  // Returns a row of the checkpoint as stored, where its columns are contiguous.
  std::span<const std::byte> row(int64_t r) const {
    return data_.subspan(static_cast<size_t>(stored(r)) * bytes(), bytes());
  }
  // Reads the values of a row of the checkpoint.
  void read(int64_t r, std::span<float> values) {
    if (order_.turned != 0) {
      read_turned(r, values);
      return;
    }
    decode_ggml(type_, row(r), values.data());
    if (!order_.columns) return;
    stored_values_.assign(values.begin(), values.end());
    for (size_t c = 0; c < values.size(); ++c)
      values[c] = stored_values_[static_cast<size_t>(order_.stored(static_cast<int64_t>(c)))];
  }
  std::span<const std::byte> range(int64_t first, int64_t rows) const {
    return data_.subspan(static_cast<size_t>(first) * bytes(), static_cast<size_t>(rows) * bytes());
  }

 private:
  int64_t stored(int64_t r) const {
    if (paired_heads_ == 0) return order_.columns ? r : order_.stored(r);
    const int64_t head = rows_ / paired_heads_, half = head / 2;
    const int64_t in_head = r % head;
    return r - in_head + in_head % half * 2 + in_head / half;
  }

  // Reads from heads that are stored transposed: the file has each as a matrix [cols, rows of a
  // head].
  void read_turned(int64_t r, std::span<float> values) {
    const int64_t of_head = rows_ / order_.turned, head = r / of_head;
    const size_t bytes = data_.size() / static_cast<size_t>(order_.turned);
    if (head != head_) {
      stored_values_.resize(static_cast<size_t>(of_head * cols_));
      decode_ggml(type_, data_.subspan(static_cast<size_t>(head) * bytes, bytes),
                  stored_values_.data());
      head_ = head;
    }
    for (size_t c = 0; c < values.size(); ++c)
      values[c] =
          stored_values_[c * static_cast<size_t>(of_head) + static_cast<size_t>(r % of_head)];
  }

  std::span<const std::byte> data_;
  int64_t rows_, cols_;
  int64_t paired_heads_;
  uint32_t type_;
  GgufOrder order_;
  std::vector<float> stored_values_;
  int64_t head_ = -1;  // stored_values_ hold this head
};

// Returns the checkpoint's value for the file's `value`.
float restored(const TensorInfo& info, const GgufOrder& order, float value) {
  if (!order.rates) return value - info.gguf->offset;
  if (!(value < 0) || std::isinf(value)) {
    throw Error(ErrorCode::bad_input, info.where(),
                fmt::format("holds the rate {}, expected a negative number", value));
  }
  return std::log(-value);
}

template <typename T>
std::span<T> allocate(Tensor& tensor, size_t count) {
  auto buffer = std::make_shared<AlignedArray<T>>(count);
  const std::span<T> result(buffer->data(), count);
  tensor.owner = buffer;
  return result;
}

// Splits rows of codes: in the file, scales and codes alternate; walsh stores them in separate
// arrays.
void split_blocks(const Rows& source, const TensorInfo& info, int64_t first, Tensor& tensor) {
  const ScalarCode& code = tensor.format->code[0];
  const auto rows = static_cast<size_t>(tensor.rows), cols = static_cast<size_t>(tensor.cols);
  const size_t groups = cols / static_cast<size_t>(code.group);
  const size_t code_bytes = cols * static_cast<size_t>(code.bits) / 8;
  const auto memory =
      allocate<std::byte>(tensor, rows * (code_bytes + groups * (code.has_offset ? 4 : 2)));
  const auto codes = memory.first(rows * code_bytes);
  const auto scales = memory.subspan(codes.size(), rows * groups * 2);
  const auto offsets = memory.subspan(codes.size() + scales.size());
  std::vector<float> values(cols);
  std::vector<uint16_t> row_scales(groups), row_offsets(groups);
  for (size_t r = 0; r < rows; ++r) {
    const auto row = source.row(first + static_cast<int64_t>(r));
    if (!read_gguf_codes(info.gguf->type, row, *tensor.format, values, &codes[r * code_bytes],
                         row_scales.data(), row_offsets.data())) {
      throw Error(ErrorCode::bad_input, info.where(),
                  fmt::format("row {} holds a scale or an offset that f16 does not",
                              first + static_cast<int64_t>(r)));
    }
    std::memcpy(&scales[r * groups * 2], row_scales.data(), groups * 2);
    if (code.has_offset) std::memcpy(&offsets[r * groups * 2], row_offsets.data(), groups * 2);
  }
  tensor.pass[0].codes = codes;
  tensor.pass[0].scales = scales;
  if (code.has_offset) tensor.pass[0].offsets = offsets;
}

template <typename T, typename Convert>
void decode(Rows& source, int64_t first, Tensor& tensor, Convert convert) {
  const auto cols = static_cast<size_t>(source.cols());
  const auto rows = static_cast<size_t>(tensor.rows * tensor.cols) / cols;
  const auto out = allocate<T>(tensor, rows * cols);
  std::vector<float> values(cols);
  for (size_t r = 0; r < rows; ++r) {
    source.read(first + static_cast<int64_t>(r), values);
    std::transform(values.begin(), values.end(), out.begin() + static_cast<ptrdiff_t>(r * cols),
                   convert);
  }
  tensor.data = std::as_bytes(out);
}

// Lists the names that `name_of` gives matrices with counts, such as "Q4_K (49 tensors), Q6_K (7
// tensors)". Matrices without a name are not counted.
std::string list_types(const Checkpoint& checkpoint, auto&& name_of) {
  std::map<std::string, int> counts;
  for (const TensorInfo& info : checkpoint.tensors()) {
    if (!info.gguf || info.shape.size() < 2) continue;
    if (const std::string name = name_of(info); !name.empty()) ++counts[name];
  }
  std::string text;
  for (const auto& [type, count] : counts)
    text += fmt::format("{}{} ({} tensor{})", text.empty() ? "" : ", ", type, count,
                        count == 1 ? "" : "s");
  return text;
}

}  // namespace

const Format& gguf_format(const TensorInfo& info, GgufCodes codes) {
  if (!can_decode_ggml(info.gguf->type)) {
    throw Error(ErrorCode::bad_input, info.where(),
                "has type " + info.dtype_text + ", which is not read");
  }
  if (const Format* coded = code_format(info, codes)) return *coded;
  if (is_computed(info)) return dense_format(DType::f32);
  if (is_dense(info)) return dense_format(info.dtype());
  return dense_format(info.dtype_text == "MXFP4" ? DType::bf16 : DType::f16);
}

Tensor load_gguf_rows(const std::shared_ptr<const Checkpoint>& checkpoint, const TensorInfo& info,
                      GgufCodes codes, int64_t first, int64_t rows) {
  Tensor tensor;
  tensor.format = &gguf_format(info, codes);
  tensor.rows = rows;
  tensor.cols = info.shape.back();
  for (Rotation& rotation : tensor.rotation)
    rotation = {RotationKind::none, 32, 0, false};
  Rows source(*checkpoint, info);
  if (!tensor.format->dense) {
    split_blocks(source, info, first, tensor);
    return tensor;
  }
  if (is_dense(info) && !is_computed(info) && source.is_plain()) {
    tensor.data = source.range(first, rows);
    tensor.owner = checkpoint;
    return tensor;
  }
  switch (tensor.format->dtype) {
    case DType::f32:
      decode<float>(source, first, tensor,
                    [&](float v) { return restored(info, source.order(), v); });
      break;
    case DType::bf16:
      decode<uint16_t>(source, first, tensor, f32_to_bf16);
      break;
    case DType::f16:
      decode<uint16_t>(source, first, tensor, [&](float v) {
        if (!(std::fabs(v) <= kLargestHalf)) {
          throw Error(ErrorCode::bad_input, info.where(),
                      fmt::format("holds the value {}, which f16 does not", v));
        }
        return f32_to_f16(v);
      });
      break;
  }
  return tensor;
}

std::string describe_gguf(const Checkpoint& checkpoint, GgufCodes codes) {
  const std::string list = list_types(checkpoint, [&](const TensorInfo& info) -> std::string {
    if (is_dense(info)) return {};
    const Format* coded = code_format(info, codes);
    return info.dtype_text + " as " + (coded != nullptr ? std::string(coded->name) : "16 bits");
  });
  return list.empty() ? list : checkpoint.folder() + ": " + list;
}

std::string warn_of_quantized(const Checkpoint& checkpoint) {
  const std::string types = list_types(checkpoint, [](const TensorInfo& info) {
    const GgmlTypeInfo& type = *ggml_type_info(info.gguf->type);
    return type.block_bytes < type.block ? info.dtype_text : std::string();
  });
  if (types.empty()) return {};
  return checkpoint.folder() + ": is quantized to less than 8 bits, " + types +
         ": its errors remain and the new ones are added";
}

}  // namespace walsh
