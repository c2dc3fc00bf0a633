// Aligns arrays on the heap to 64 bytes, so that SIMD loads of a panel or row are aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "walsh/error.h"

namespace walsh {

namespace detail {

// Returns zeroed memory aligned to 64 bytes; null for 0 bytes. It comes from huge pages where the
// system has them, because the weights are read once per token, and looking up 4 KiB pages costs a
// quarter of the speed. Arrays of less than one huge page share a block. Throws ErrorCode::limit if
// there is not enough memory.
std::shared_ptr<void> allocate_zeroed(size_t bytes);

}  // namespace detail

template <typename T>
class AlignedArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedArray() = default;
  // Makes `count` zeroed elements. Throws ErrorCode::limit if there is not enough memory.
  explicit AlignedArray(size_t count) : size_(count) {
    size_t bytes;
    if (__builtin_mul_overflow(count, sizeof(T), &bytes)) {
      throw Error(ErrorCode::limit, "memory", "allocation size overflows");
    }
    data_ = std::static_pointer_cast<T>(detail::allocate_zeroed(bytes));
  }
  AlignedArray(AlignedArray&&) noexcept = default;
  AlignedArray& operator=(AlignedArray&&) noexcept = default;

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  std::shared_ptr<T> data_;
  size_t size_ = 0;
};

}  // namespace walsh
