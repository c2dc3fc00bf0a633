#include "cache/latents.h"

#include <algorithm>

#include "base/half.h"
#include "cache/encode.h"
#include "cache/side.h"
#include "codec/tensor.h"

namespace walsh {
namespace {

template <typename T>
AlignedArray<T> array(int64_t rows, int64_t cols) {
  return AlignedArray<T>(static_cast<size_t>(rows * cols));
}

}  // namespace

CacheLatents::CacheLatents(const CacheType& type, int64_t rank, int64_t turned, int64_t capacity)
    : type_(&type),
      cols_(padded_head_dim(type, rank)),
      turned_(turned),
      row_bytes_(code_bytes_per_row(type.code, cols_)),
      groups_(groups_per_row(type.code, cols_)) {
  const int64_t positions = (capacity + kCacheBlock - 1) / kCacheBlock * kCacheBlock;
  codes_ = array<std::byte>(positions, row_bytes_);
  scales_ = array<uint16_t>(positions, groups_);
  shared_keys_ = array<uint16_t>(positions, turned_);
}

void CacheLatents::store(int64_t bundle, float* x, const uint16_t* shared_keys, int64_t stride) {
  const int64_t first = bundle * kCacheBundle;
  encode_cache_rows(*type_, x, kCacheBundle, cols_, codes_.data() + first * row_bytes_,
                    scales_.data() + first * groups_);
  for (int64_t j = 0; j < kCacheBundle; ++j)
    std::copy_n(shared_keys + j * stride, turned_, shared_keys_.data() + (first + j) * turned_);
}

// Writes levels times scales of one position to x.
void CacheLatents::decode(int64_t position, uint8_t* codes, float* x) const {
  const ScalarCode& code = type_->code;
  unpack_codes(code, codes_.data() + position * row_bytes_, cols_, codes);
  const int64_t group = cols_ / groups_;
  for (int64_t g = 0; g < groups_; ++g) {
    const float scale = f16_to_f32(scales_.data()[position * groups_ + g]);
    float levels[16];
    for (int i = 0; i < 1 << code.bits && code.bits < 8; ++i)
      levels[i] = scale * code.levels[i];
    const uint8_t* from = codes + g * group;
    float* to = x + g * group;
    if (code.bits == 8) {
      for (int64_t i = 0; i < group; ++i)
        to[i] = scale * static_cast<float>(static_cast<int8_t>(from[i]));
    } else {
      for (int64_t i = 0; i < group; ++i)
        to[i] = levels[from[i]];
    }
  }
}

void CacheLatents::load(const Ops& ops, int64_t first, int64_t count, uint16_t* rows) const {
  std::vector<uint8_t> codes(static_cast<size_t>(cols_));
  std::vector<float> x(static_cast<size_t>(cols_));
  for (int64_t j = 0; j < count; ++j) {
    uint16_t* row = rows + j * width();
    decode(first + j, codes.data(), x.data());
    ops.to_f16(x.data(), cols_, row);
    std::copy_n(shared_keys_.data() + (first + j) * turned_, turned_, row + cols_);
  }
}

void CacheLatents::copy_block(int64_t from, int64_t to) {
  const auto copy = [&](auto& values, int64_t row) {
    const int64_t size = kCacheBlock * row;
    std::copy_n(values.data() + from * size, size, values.data() + to * size);
  };
  copy(codes_, row_bytes_);
  copy(scales_, groups_);
  copy(shared_keys_, turned_);
}

void CacheLatents::visit_block(int64_t block, MemoryVisitor visit) {
  walsh::visit_block(visit, codes_, block, kCacheBlock * row_bytes_);
  walsh::visit_block(visit, scales_, block, kCacheBlock * groups_);
  walsh::visit_block(visit, shared_keys_, block, kCacheBlock * turned_);
}

uint64_t CacheLatents::bytes() const {
  return codes_.size() + (scales_.size() + shared_keys_.size()) * sizeof(uint16_t);
}

}  // namespace walsh
