#include "cache/side.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/half.h"
#include "cache/encode.h"
#include "cache/half_rows.h"
#include "kernels/panel_layout.h"

namespace walsh {
namespace {

constexpr uint16_t kHalfOne = 0x3c00;
constexpr int kWeightGroup = 64;  // positions whose softmax weights share an int8 scale

int64_t blocks_of(int64_t capacity) {
  return ceil_div(capacity, kCacheBlock);
}

// Returns an all-zero matrix, which decodes to finite values because its scales are finite.
PanelMatrix empty_matrix(const ScalarCode& code, int64_t rows, int64_t cols, int64_t group) {
  PanelMatrix w;
  w.code = &code;
  w.rows = rows;
  w.cols = cols;
  w.group = group;
  const int64_t words = detail::panel_words(w, code.bits), groups = ceil_div(cols, group);
  w.codes = AlignedArray<uint32_t>(static_cast<size_t>(w.panels() * words));
  w.scales = AlignedArray<uint16_t>(static_cast<size_t>(w.panels() * groups * kPanelRows));
  return w;
}

// Returns the first word of a row's column `col`; its other words are kPanelRows apart.
uint32_t* row_words(PanelMatrix& w, int64_t row, int64_t col) {
  const int bits = w.code->bits;
  return w.codes.data() + row / kPanelRows * detail::panel_words(w, bits) +
         col / detail::kUnitColumns * bits * kPanelRows + row % kPanelRows;
}

// Writes `count` words of codes, stored as in codec/tensor.h.
void put_words(const ScalarCode& code, const std::byte* stored, int64_t count, uint32_t* out) {
  for (int64_t k = 0; k < count; ++k) {
    uint32_t word;
    std::memcpy(&word, stored + 4 * k, 4);
    out[k * kPanelRows] = code.bits == 8 ? word : detail::permute_nibbles(word);
  }
}

struct EncodedBundle {
  std::vector<std::byte> codes;  // [kCacheBundle][bytes]
  std::vector<uint16_t> scales;  // [kCacheBundle][groups]
  int64_t bytes, groups;

  EncodedBundle(const CacheType& type, float* x, int64_t cols)
      : bytes(code_bytes_per_row(type.code, cols)), groups(groups_per_row(type.code, cols)) {
    codes.resize(static_cast<size_t>(kCacheBundle * bytes));
    scales.resize(static_cast<size_t>(kCacheBundle * groups));
    encode_cache_rows(type, x, kCacheBundle, cols, codes.data(), scales.data());
  }
};

// Computes y[rows][ldy] = W x, or adds to it, over the panels [begin, end).
void multiply_panels(const Ops& ops, const PanelMatrix& w, const CacheRows& x, int64_t rows,
                     float* y, int64_t ldy, int64_t begin, int64_t end, bool accumulate) {
  if (x.quantized()) {
    ops.matmul_i8({w, x.i8, rows, y, ldy, begin, end, accumulate});
  } else {
    ops.matmul_f32({w, x.x.data(), x.cols, rows, y, ldy, begin, end, accumulate});
  }
}

uint64_t bytes_of(const std::vector<PanelMatrix>& blocks) {
  uint64_t sum = 0;
  for (const PanelMatrix& block : blocks)
    sum += block.bytes();
  return sum;
}

// Copies block `from` to `to` in an array with `size` elements per block.
void copy_part(AlignedArray<uint16_t>& array, int64_t size, int64_t from, int64_t to) {
  if (!array.empty()) std::copy_n(array.data() + from * size, size, array.data() + to * size);
}

void copy_matrix(std::vector<PanelMatrix>& blocks, int64_t from, int64_t to) {
  if (blocks.empty()) return;
  const PanelMatrix& a = blocks[static_cast<size_t>(from)];
  PanelMatrix& b = blocks[static_cast<size_t>(to)];
  std::copy(a.codes.begin(), a.codes.end(), b.codes.begin());
  std::copy(a.scales.begin(), a.scales.end(), b.scales.begin());
}

void visit_matrix(std::vector<PanelMatrix>& blocks, int64_t block, MemoryVisitor visit) {
  if (blocks.empty()) return;
  PanelMatrix& w = blocks[static_cast<size_t>(block)];
  visit_elements(visit, w.codes.data(), std::ssize(w.codes));
  visit_elements(visit, w.scales.data(), std::ssize(w.scales));
}

// Returns the rows of the identity that select `rows` rows from `first` on.
CacheRows bundle_rows(int64_t rows, int64_t cols, int64_t first) {
  CacheRows x(rows, cols, 0, 0);
  for (int64_t r = 0; r < rows; ++r)
    x.x.data()[r * cols + first + r] = 1;
  return x;
}

}  // namespace

CacheRows::CacheRows(int64_t rows, int64_t columns, int group, int planes)
    : x(static_cast<size_t>(rows * columns)), cols(columns) {
  if (planes > 0) i8 = ActivationsI8(rows, cols, group, planes);
}

void CacheRows::quantize(const Ops& ops, int64_t row) {
  if (quantized()) ops.quantize_i8(x.data() + row * cols, i8, row);
}

CacheRows query_rows(const CacheType& type, int64_t rows, int64_t cols, bool exact) {
  const int group = type.rotation_block == kWholeHead ? kActivationGroup : kPlainGroup;
  return CacheRows(rows, cols, group, exact || !type.coded ? 0 : type.planes);
}

// Few positions share a scale of softmax weights, so that the int8 error stays below a twentieth of
// the codes' error, even if a single weight dominates.
CacheRows weight_rows(const CacheType& type, int64_t rows, int64_t cols, bool exact) {
  CacheRows result(rows, kCacheBlock, kWeightGroup, exact || !type.coded ? 0 : type.planes);
  if (!type.coded)  // and the products of one block
    result.x = AlignedArray<float>(static_cast<size_t>(rows * (kCacheBlock + cols)));
  return result;
}

CacheKeys::CacheKeys(const CacheType& type, int64_t head_dim, int64_t capacity)
    : type_(&type), cols_(padded_head_dim(type, head_dim)) {
  const int64_t blocks = blocks_of(capacity);
  if (!type.coded) {
    halves_ = AlignedArray<uint16_t>(static_cast<size_t>(blocks * kCacheBlock * cols_));
    return;
  }
  const int64_t group = type.code.group == 0 ? cols_ : type.code.group;
  for (int64_t b = 0; b < blocks; ++b)
    blocks_.push_back(empty_matrix(type.code, kCacheBlock, cols_, group));
}

void CacheKeys::store(const Ops& ops, int64_t bundle, float* x) {
  const int64_t first = bundle * kCacheBundle;
  if (!type_->coded) {
    store_half_row(ops, x, kCacheBundle * cols_, halves_.data() + first * cols_);
    return;
  }
  const EncodedBundle encoded(*type_, x, cols_);
  PanelMatrix& w = blocks_[static_cast<size_t>(first / kCacheBlock)];
  for (int64_t j = 0; j < kCacheBundle; ++j) {
    const int64_t row = first % kCacheBlock + j;
    put_words(type_->code, encoded.codes.data() + j * encoded.bytes, encoded.bytes / 4,
              row_words(w, row, 0));
    uint16_t* scales =
        w.scales.data() + row / kPanelRows * encoded.groups * kPanelRows + row % kPanelRows;
    for (int64_t g = 0; g < encoded.groups; ++g)
      scales[g * kPanelRows] = encoded.scales[static_cast<size_t>(j * encoded.groups + g)];
  }
}

void CacheKeys::multiply(const Ops& ops, int64_t block, int64_t count, const CacheRows& q,
                         int64_t rows, float* out) const {
  if (type_->coded) {
    multiply_panels(ops, blocks_[static_cast<size_t>(block)], q, rows, out, kCacheBlock, 0,
                    ceil_div(count, kPanelRows), false);
  } else {
    ops.matmul_dense(DType::f16, halves_.data() + block * kCacheBlock * cols_, cols_, q.x.data(),
                     cols_, rows, out, kCacheBlock, 0, count);
  }
}

void CacheKeys::copy_block(int64_t from, int64_t to) {
  copy_matrix(blocks_, from, to);
  copy_part(halves_, kCacheBlock * cols_, from, to);
}

void CacheKeys::visit_block(int64_t block, MemoryVisitor visit) {
  visit_matrix(blocks_, block, visit);
  walsh::visit_block(visit, halves_, block, kCacheBlock * cols_);
}

void CacheKeys::load(const Ops& ops, int64_t bundle, float* x) const {
  AlignedArray<float> columns(static_cast<size_t>(cols_ * kCacheBlock));
  const int64_t first = bundle * kCacheBundle % kCacheBlock;
  multiply(ops, bundle * kCacheBundle / kCacheBlock, first + kCacheBundle,
           bundle_rows(cols_, cols_, 0), cols_, columns.data());
  for (int64_t j = 0; j < kCacheBundle; ++j)
    for (int64_t d = 0; d < cols_; ++d)
      x[j * cols_ + d] = columns.data()[d * kCacheBlock + first + j];
}

uint64_t CacheKeys::bytes() const {
  return halves_.size() * sizeof(uint16_t) + bytes_of(blocks_);
}

CacheValues::CacheValues(const CacheType& type, int64_t head_dim, int64_t capacity)
    : type_(&type), cols_(padded_head_dim(type, head_dim)) {
  const int64_t blocks = blocks_of(capacity);
  scales_ = AlignedArray<uint16_t>(static_cast<size_t>(blocks * groups() * kCacheBlock));
  if (!type.coded) {
    halves_ = AlignedArray<uint16_t>(static_cast<size_t>(blocks * cols_ * kCacheBlock));
    return;
  }
  for (int64_t b = 0; b < blocks; ++b) {
    blocks_.push_back(empty_matrix(type.code, cols_, kCacheBlock, kCacheBlock));
    std::fill(blocks_.back().scales.begin(), blocks_.back().scales.end(), kHalfOne);
  }
}

// fp16 values have one group.
int64_t CacheValues::groups() const {
  return groups_per_row(type_->code, cols_);
}

void CacheValues::store(const Ops&, int64_t bundle, float* x) {
  const int64_t block = bundle * kCacheBundle / kCacheBlock,
                first = bundle * kCacheBundle % kCacheBlock;
  if (!type_->coded) {
    store_halves(block, first, x);
    return;
  }
  const ScalarCode& code = type_->code;
  const EncodedBundle encoded(*type_, x, cols_);
  std::vector<uint8_t> codes(static_cast<size_t>(kCacheBundle * cols_));
  for (int64_t j = 0; j < kCacheBundle; ++j)
    unpack_codes(code, encoded.codes.data() + j * encoded.bytes, cols_, codes.data() + j * cols_);
  PanelMatrix& w = blocks_[static_cast<size_t>(block)];
  for (int64_t d = 0; d < cols_; ++d) {
    uint8_t column[kCacheBundle];
    std::byte packed[kCacheBundle];
    for (int64_t j = 0; j < kCacheBundle; ++j)
      column[j] = codes[static_cast<size_t>(j * cols_ + d)];
    pack_codes(code, column, kCacheBundle, packed);
    put_words(code, packed, code.bits, row_words(w, d, first));
  }
  for (int64_t g = 0; g < encoded.groups; ++g)
    for (int64_t j = 0; j < kCacheBundle; ++j)
      scales_.data()[(block * encoded.groups + g) * kCacheBlock + first + j] =
          encoded.scales[static_cast<size_t>(j * encoded.groups + g)];
}

// A vector with a value that is not finite becomes zeros with a NaN scale, as in coded types: in a
// product it would otherwise affect sums in which its weight is 0.
void CacheValues::store_halves(int64_t block, int64_t first, const float* x) {
  for (int64_t j = 0; j < kCacheBundle; ++j) {
    bool finite = true;
    uint16_t* column = halves_.data() + block * cols_ * kCacheBlock + first + j;
    for (int64_t d = 0; d < cols_; ++d) {
      column[d * kCacheBlock] = f32_to_f16(x[j * cols_ + d]);
      finite = finite && std::isfinite(f16_to_f32(column[d * kCacheBlock]));
    }
    for (int64_t d = 0; d < cols_ && !finite; ++d)
      column[d * kCacheBlock] = 0;
    scales_.data()[block * kCacheBlock + first + j] = finite ? kHalfOne : kHalfNan;
  }
}

void CacheValues::add(const Ops& ops, int64_t block, const float* weights, int64_t rows,
                      CacheRows& scaled, float* sums) const {
  for (int64_t g = 0; g < groups(); ++g) {
    const uint16_t* scales = scales_.data() + (block * groups() + g) * kCacheBlock;
    for (int64_t r = 0; r < rows; ++r) {
      ops.scale_weights(weights + r * kCacheBlock, scales, kCacheBlock,
                        scaled.x.data() + r * kCacheBlock);
      scaled.quantize(ops, r);
    }
    if (type_->coded) {
      multiply_panels(ops, blocks_[static_cast<size_t>(block)], scaled, rows, sums, cols_,
                      g * group_size() / kPanelRows, (g + 1) * group_size() / kPanelRows, true);
    } else {
      add_halves(ops, block, rows, scaled, sums);
    }
  }
}

void CacheValues::add_halves(const Ops& ops, int64_t block, int64_t rows, CacheRows& scaled,
                             float* sums) const {
  float* y = scaled.x.data() + rows * kCacheBlock;
  ops.matmul_dense(DType::f16, halves_.data() + block * cols_ * kCacheBlock, kCacheBlock,
                   scaled.x.data(), kCacheBlock, rows, y, cols_, 0, cols_);
  for (int64_t i = 0; i < rows * cols_; ++i)
    sums[i] += y[i];
}

void CacheValues::copy_block(int64_t from, int64_t to) {
  copy_matrix(blocks_, from, to);
  copy_part(halves_, kCacheBlock * cols_, from, to);
  copy_part(scales_, groups() * kCacheBlock, from, to);
}

void CacheValues::visit_block(int64_t block, MemoryVisitor visit) {
  visit_matrix(blocks_, block, visit);
  walsh::visit_block(visit, halves_, block, kCacheBlock * cols_);
  walsh::visit_block(visit, scales_, block, groups() * kCacheBlock);
}

void CacheValues::load(const Ops& ops, int64_t bundle, float* x) const {
  const int64_t block = bundle * kCacheBundle / kCacheBlock,
                first = bundle * kCacheBundle % kCacheBlock;
  const CacheRows weights = bundle_rows(kCacheBundle, kCacheBlock, first);
  CacheRows scaled = weight_rows(*type_, kCacheBundle, cols_, true);
  std::fill_n(x, kCacheBundle * cols_, 0.0f);
  add(ops, block, weights.x.data(), kCacheBundle, scaled, x);
}

uint64_t CacheValues::bytes() const {
  return (halves_.size() + scales_.size()) * sizeof(uint16_t) + bytes_of(blocks_);
}

}  // namespace walsh
