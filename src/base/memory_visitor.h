// Visits the parts of memory in which something lies, always in the same order, so that one
// function serves to write it to a file and to read it again.
#pragma once

#include <cstddef>
#include <span>

#include "base/aligned.h"
#include "base/function_ref.h"

namespace walsh {

using MemoryVisitor = FunctionRef<void(std::span<std::byte> part)>;

// Visits `count` elements from `first` on.
template <typename T>
void visit_elements(MemoryVisitor visit, T* first, int64_t count) {
  if (count > 0) visit(std::as_writable_bytes(std::span(first, static_cast<size_t>(count))));
}

// Visits block `index` of an array with `size` elements per block; nothing if the array is empty.
template <typename T>
void visit_block(MemoryVisitor visit, AlignedArray<T>& array, int64_t index, int64_t size) {
  if (!array.empty()) visit_elements(visit, array.data() + index * size, size);
}

}  // namespace walsh
