#include "base/cuda/lent_memory.h"

#include <fmt/format.h>

#include <utility>

#include "walsh/error.h"

namespace walsh::cuda {
namespace {

thread_local LentMemory* lender = nullptr;

}  // namespace

LentMemory::LentMemory(void* memory, uint64_t bytes)
    : outer_(std::exchange(lender, this)), next_(static_cast<std::byte*>(memory)), left_(bytes) {}

LentMemory::~LentMemory() {
  lender = outer_;
}

LentMemory* LentMemory::current() {
  return lender;
}

void* LentMemory::take(uint64_t bytes) {
  // A size that wraps around is smaller than what was asked for.
  const uint64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (whole < bytes || whole > left_) {
    throw Error(ErrorCode::internal, "GPU workspace",
                fmt::format("{} bytes needed, {} are left", bytes, left_));
  }
  left_ -= whole;
  return std::exchange(next_, next_ + whole);
}

}  // namespace walsh::cuda
