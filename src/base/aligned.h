// A heap array aligned to 64 bytes, so that every SIMD load of a panel or row start is aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "walsh/error.h"

namespace walsh {

template <typename T>
class AlignedArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedArray() = default;
  // `count` elements, zeroed. Throws ErrorCode::limit when the memory cannot be had.
  explicit AlignedArray(size_t count) : size_(count) {
    if (count == 0) return;
    size_t bytes;
    if (__builtin_mul_overflow(count, sizeof(T), &bytes) || bytes > SIZE_MAX - 63) {
      throw Error(ErrorCode::limit, "memory", "allocation size overflows");
    }
    bytes = (bytes + 63) / 64 * 64;
    data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
    if (!data_) {
      throw Error(ErrorCode::limit, "memory",
                  "cannot allocate " + std::to_string(bytes) + " bytes");
    }
    std::memset(static_cast<void*>(data_.get()), 0, bytes);
  }

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
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

}  // namespace walsh
