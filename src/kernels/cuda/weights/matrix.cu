// Repacks stored rows into fragment order.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <string>

#include "base/checked.h"
#include "codec/product/product.h"
#include "codec/scalar/words.h"
#include "kernels/cuda/weights/matrix.h"
#include "kernels/cuda/weights/pack_trellis.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kUnit = 32;  // A unit of stored codes has this many columns.
constexpr int kThreads = 256;

struct CodeShape {
  int64_t rows, stored_units;  // `stored_units` is the units of 32 columns per stored row.
  int64_t tiles, chunks;
};

// Packs scalar codes. Each thread writes the words of one lane, chunk and row of the tile.
template <int Bits>
__global__ void pack_codes(const uint32_t* stored, uint32_t* out, CodeShape shape) {
  constexpr int kWords = Bits == 8 ? 8 : Bits;        // It is per row, lane and chunk.
  constexpr int kChunks = Bits == 3 ? 2 : 1;          // It is per piece.
  constexpr int kVectors = 2 * kWords * kChunks / 4;  // It is per piece.
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int lane = static_cast<int>(index % 32), half = static_cast<int>(index / 32 % 2);
  const int64_t chunk = index / 64 % shape.chunks, tile = index / 64 / shape.chunks;
  if (tile >= shape.tiles) return;
  const int t = lane % 4;
  const int64_t row = tile * kTileRows + lane / 4 + 8 * half;

  uint32_t words[kWords] = {}, octets[4] = {};
  for (int i = 0; i < 4; ++i) {
    const int64_t unit = chunk * 4 + i;
    if (row >= shape.rows || unit >= shape.stored_units) continue;
    const uint32_t* in = stored + (row * shape.stored_units + unit) * Bits;
    if constexpr (Bits == 8) {
      words[2 * i] = in[2 * t];
      words[2 * i + 1] = in[2 * t + 1];
    } else {
      octets[i] = scalar::octet<Bits>(in, t);
    }
  }
  if constexpr (Bits != 8) scalar::join_octets<Bits>(octets, words);

  const int64_t piece = tile * (shape.chunks / kChunks) + chunk / kChunks;
  for (int i = 0; i < kWords; ++i) {
    const int number = (static_cast<int>(chunk % kChunks) * 2 + half) * kWords + i;
    out[((piece * kVectors + number / 4) * 32 + lane) * 4 + number % 4] = words[i];
  }
}

// Packs product codes (codec/product/product.h), whose 32 columns are three words.
__global__ void pack_product_codes(const uint32_t* stored, uint32_t* out, CodeShape shape) {
  constexpr int kWords = 3;
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int lane = static_cast<int>(index % 32), half = static_cast<int>(index / 32 % 2);
  const int64_t chunk = index / 64 % shape.chunks, tile = index / 64 / shape.chunks;
  if (tile >= shape.tiles) return;
  const int t = lane % 4;
  const int64_t row = tile * kTileRows + lane / 4 + 8 * half;
  uint32_t words[kWords] = {};
  for (int i = 0; i < 4; ++i) {
    const int64_t unit = chunk * 4 + i;
    if (row >= shape.rows || unit >= shape.stored_units) continue;
    const uint32_t* in = stored + (row * shape.stored_units + unit) * kWords;
    if (i / 2 == t % 2) words[i % 2] = in[t / 2];
    for (int r = 0; r < 8; ++r) {
      const uint32_t negative = in[2] >> (8 * (r % 4) + 2 * t + r / 4) & 1u;
      words[2] |= (negative ^ 1u) << (16 * (r / 4) + 4 * (r % 4) + i);
    }
  }
  const int64_t piece = tile * (shape.chunks / 2) + chunk / 2;
  for (int i = 0; i < kWords; ++i) {
    const int number = (static_cast<int>(chunk % 2) * 2 + half) * kWords + i;
    out[((piece * kWords + number / 4) * 32 + lane) * 4 + number % 4] = words[i];
  }
}

// Converts [256][4] entries to Matrix::table.
__global__ void pack_codebook(const int8_t* codebook, uint16_t* out, int residual) {
  const auto i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= 2 * kProductEntries) return;
  const int8_t* entry = codebook + i % kProductEntries * kProductValues + i / kProductEntries * 2;
  const auto byte = [&](int v) { return static_cast<unsigned>(entry[v] - residual + 128) & 255u; };
  out[i] = static_cast<uint16_t>(byte(0) | byte(1) << 8);
}

struct GroupShape {
  int64_t rows, tiles, groups;
  int64_t stored_groups;  // A row of `in` has this many groups.
  int64_t sub_groups;     // A row of `factors` has this many sub-groups.
  int64_t per_stored;     // A stored group has this many groups.
};

// Reorders [rows][groups] to [tile][group][g][2], multiplied by a factor per group if there are
// factors.
__global__ void pack_groups(const __half* in, const __half* factors, __half* out,
                            GroupShape shape) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t group = index / kTileRows % shape.groups;
  const int64_t tile = index / kTileRows / shape.groups;
  if (tile >= shape.tiles) return;
  const int k = static_cast<int>(index % kTileRows);
  const int64_t row = tile * kTileRows + k / 2 + 8 * (k % 2);
  const int64_t stored = group / shape.per_stored;
  __half value = __float2half_rn(0.0f);
  if (row < shape.rows && stored < shape.stored_groups) {
    value = in[row * shape.stored_groups + stored];
    if (factors) {
      const float factor =
          group < shape.sub_groups ? __half2float(factors[row * shape.sub_groups + group]) : 0.0f;
      value = __float2half_rn(__half2float(value) * factor);
    }
  }
  out[index] = value;
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>(ceil_div(threads, kThreads));
}

int64_t padded_columns(int64_t cols) {
  return ceil_div(cols, kPaddedColumns) * kPaddedColumns;
}

void check_code(const ScalarCode& code, int64_t rows, int64_t cols) {
  const auto known_group = [](int group) {
    return group == 0 || group == 32 || group == 128 || group == 256;
  };
  if (known_group(code.group) && (code.sub_group == 0 || code.sub_group == 32) && rows > 0 &&
      cols > 0) {
    return;
  }
  throw Error(ErrorCode::internal, "GPU weights",
              "no layout for " + std::to_string(rows) + " x " + std::to_string(cols) +
                  " codes of " + std::to_string(code.bits) + " bits in groups of " +
                  std::to_string(code.sub_group ? code.sub_group : code.group));
}

// Returns how scales and offsets of a pass are grouped.
ScalarCode grouping(const Format& format, int pass, int64_t cols) {
  if (format.kind == CodeKind::scalar) return format.code[pass];
  ScalarCode code;
  code.group = format.kind == CodeKind::product ? format.product.group
                                                : static_cast<int>(detail::trellis_group(cols));
  return code;
}

// Returns the shape of a packed pass without allocating memory.
Matrix describe(const Format& format, int pass, int64_t rows, int64_t cols) {
  Matrix matrix;
  matrix.code = matrix_code(format, pass);
  const ScalarCode code = grouping(format, pass, cols);
  check_code(code, rows, cols);
  matrix.rows = rows;
  matrix.cols = padded_columns(cols);
  const int64_t stored_group = code.group ? code.group : matrix.cols;
  matrix.group = code.sub_group ? code.sub_group : stored_group;
  matrix.offset_group = code.has_offset ? stored_group : 0;
  return matrix;
}

uint64_t code_bytes(const Matrix& m) {
  const auto rows = static_cast<uint64_t>(m.tiles() * kTileRows);
  // A bit of a weight takes 4 words.
  const auto words = static_cast<uint64_t>(code_words(m.code.decoder));
  return checked_mul(rows, static_cast<uint64_t>(m.cols) * words, "GPU weights") / 32;
}

uint64_t group_bytes(const Matrix& m, int64_t group) {
  return static_cast<uint64_t>(m.tiles()) * kTileRows * 2 *
         static_cast<uint64_t>(ceil_div(m.cols, group));
}

void launch_codes(const Matrix& m, const StoredPass& stored, int64_t stored_cols, Stream stream) {
  const CodeShape shape{m.rows, stored_cols / kUnit, m.tiles(), m.cols / kChunkColumns};
  const unsigned blocks = blocks_for(shape.tiles * shape.chunks * 64);
  const auto* in = static_cast<const uint32_t*>(stored.codes);
  auto* out = m.codes.as<uint32_t>();
  with_decoder(m.code.decoder, [&]<typename Decoder>() {
    if constexpr (constexpr int kBits = kScalarBits<Decoder>; kBits != 0) {
      pack_codes<kBits><<<blocks, kThreads, 0, stream>>>(in, out, shape);
    } else {
      pack_product_codes<<<blocks, kThreads, 0, stream>>>(in, out, shape);
    }
  });
  check_launch("weight packing");
}

void launch_groups(const Matrix& m, const ScalarCode& code, int64_t group, const void* in,
                   const void* factors, int64_t stored_cols, const Buffer& out, Stream stream) {
  const int64_t stored_group = code.group ? code.group : m.cols;
  const GroupShape shape{m.rows,
                         m.tiles(),
                         ceil_div(m.cols, group),
                         code.group ? ceil_div(stored_cols, code.group) : 1,
                         code.sub_group ? ceil_div(stored_cols, code.sub_group) : 0,
                         stored_group / group};
  pack_groups<<<blocks_for(shape.tiles * shape.groups * kTileRows), kThreads, 0, stream>>>(
      static_cast<const __half*>(in), static_cast<const __half*>(factors), out.as<__half>(), shape);
  check_launch("scale packing");
}

uint64_t round_256(uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

void require_bytes(std::span<const std::byte> array, int64_t elements, uint64_t size,
                   const char* name) {
  const uint64_t needed = checked_mul(static_cast<uint64_t>(elements), size, "GPU weights");
  if (array.size() >= needed) return;
  throw Error(ErrorCode::bad_input, std::string("array '") + name + "'",
              "has " + std::to_string(array.size()) + " bytes, expected " + std::to_string(needed));
}

// Returns the entries of a product code, which may be stored in the tensor.
std::span<const std::byte> codebook_of(const Tensor& tensor) {
  if (tensor.format->kind != CodeKind::product) return {};
  return {reinterpret_cast<const std::byte*>(product_codebook(tensor)), size_t{kCodebookBytes}};
}

// Checks that the arrays of a pass are as large as packing needs, and that their values are finite.
void check_arrays(const Tensor& tensor, int pass) {
  const PassArrays& arrays = tensor.pass[pass];
  for (const PassField& field : pass_fields(*tensor.format, pass, tensor.rows, tensor.cols))
    require_bytes(arrays.*field.array, field.rows, field.row_bytes, field.suffix);
  if (tensor.format->kind == CodeKind::product)
    check_codebook(tensor.format->product, product_codebook(tensor));
}

}  // namespace

Matrix allocate_matrix(const Format& format, int pass, int64_t rows, int64_t cols) {
  Matrix m = describe(format, pass, rows, cols);
  m.codes = Buffer(code_bytes(m));
  m.scales = Buffer(group_bytes(m, m.group));
  if (m.offset_group) m.offsets = Buffer(group_bytes(m, m.offset_group));
  if (is_trellis(m.code.decoder)) m.row_factors = Buffer(group_bytes(m, m.cols));
  m.table = Buffer(static_cast<uint64_t>(table_bytes(m.code.decoder)));
  return m;
}

namespace {

// Repacks a pass into allocated memory.
void pack_into(const Matrix& m, const Format& format, int pass, int64_t cols,
               const StoredPass& stored, Stream stream) {
  if (is_trellis(m.code.decoder)) {
    detail::pack_trellis(m, format, cols, stored, stream);
    return;
  }
  const ScalarCode code = grouping(format, pass, cols);
  const int64_t stored_cols = ceil_div(cols, kUnit) * kUnit;
  launch_codes(m, stored, stored_cols, stream);
  launch_groups(m, code, m.group, stored.scales, stored.sub_scales, stored_cols, m.scales, stream);
  if (m.offset_group)
    launch_groups(m, code, m.offset_group, stored.offsets, nullptr, stored_cols, m.offsets, stream);
  if (!m.table.empty()) {
    if (stored.codebook == nullptr)
      throw Error(ErrorCode::internal, "GPU weights", "a product code without its codebook");
    pack_codebook<<<2 * kProductEntries / kThreads, kThreads, 0, stream>>>(
        static_cast<const int8_t*>(stored.codebook), m.table.as<uint16_t>(),
        format.product.residual);
    check_launch("codebook packing");
  }
}

}  // namespace

Matrix pack_matrix(const Format& format, int pass, int64_t rows, int64_t cols,
                   const StoredPass& stored, Stream stream) {
  const Matrix m = allocate_matrix(format, pass, rows, cols);
  pack_into(m, format, pass, cols, stored, stream);
  return m;
}

Matrix upload_matrix(const Tensor& tensor, int pass, Uploader& uploader, Buffer& staging) {
  const Matrix m = allocate_matrix(*tensor.format, pass, tensor.rows, tensor.cols);
  fill_matrix(m, tensor, pass, uploader, staging);
  return m;
}

void fill_matrix(const Matrix& matrix, const Tensor& tensor, int pass, Uploader& uploader,
                 Buffer& staging) {
  const PassArrays& arrays = tensor.pass[pass];
  check_arrays(tensor, pass);
  const std::span<const std::byte> spans[] = {arrays.codes,        arrays.scales,
                                              arrays.offsets,      arrays.sub_scales,
                                              codebook_of(tensor), arrays.col_scales};
  constexpr int kArrays = 6;
  const void* sent[kArrays] = {};
  if (tensor.on_gpu) {
    for (int i = 0; i < kArrays; ++i)
      sent[i] = spans[i].data();
  } else {
    uint64_t total = 0;
    for (const auto& span : spans)
      total += round_256(span.size());
    if (staging.bytes() < total) {
      staging = Buffer();  // This frees the old memory before a larger buffer is allocated.
      staging = Buffer(total);
    }
    uint64_t begin = 0;
    for (int i = 0; i < kArrays; ++i) {
      if (spans[i].empty()) continue;
      sent[i] = staging.as<std::byte>() + begin;
      uploader.copy(staging.as<std::byte>() + begin, spans[i].data(), spans[i].size());
      begin += round_256(spans[i].size());
    }
  }
  pack_into(matrix, *tensor.format, pass, tensor.cols,
            {sent[0], sent[1], sent[2], sent[3], sent[4], sent[5]}, uploader.stream());
}

DenseMatrix upload_dense(const Tensor& tensor, Uploader& uploader) {
  DenseMatrix m;
  m.type = tensor.format->dtype;
  m.rows = tensor.rows;
  m.cols = tensor.cols;
  m.data = Buffer(tensor.data.size());
  if (tensor.on_gpu) {
    copy_on_device(m.data.as(), tensor.data.data(), tensor.data.size(), uploader.stream());
  } else {
    uploader.copy(m.data.as(), tensor.data.data(), tensor.data.size());
  }
  return m;
}

namespace {

__global__ void widen_values(const void* from, bool halves, float* to, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  to[i] = halves ? __half2float(static_cast<const __half*>(from)[i])
                 : __bfloat162float(static_cast<const __nv_bfloat16*>(from)[i]);
}

}  // namespace

DenseMatrix widen(const DenseMatrix& matrix, Stream stream) {
  if (matrix.type == DType::f32) return matrix;
  const int64_t count = matrix.rows * matrix.cols;
  DenseMatrix wide{DType::f32, matrix.rows, matrix.cols,
                   Buffer(static_cast<uint64_t>(count) * sizeof(float))};
  widen_values<<<blocks_for(count), kThreads, 0, stream>>>(
      matrix.data.as(), matrix.type == DType::f16, wide.data.as<float>(), count);
  check_launch("widening");
  return wide;
}

Activations::Activations(int64_t vectors, int64_t columns, int group_size, int plane_count)
    : cols(columns), group(group_size), planes(plane_count), max_m(vectors) {
  const auto rows = static_cast<uint64_t>(vectors * plane_count);
  const auto width = static_cast<uint64_t>(columns);
  const auto groups = static_cast<uint64_t>(columns / group_size);
  q = Buffer(checked_mul(rows, width, "activations"));
  scales = Buffer(rows * groups * sizeof(float));
  sums = Buffer(rows * groups * sizeof(int32_t));
}

}  // namespace walsh::cuda
