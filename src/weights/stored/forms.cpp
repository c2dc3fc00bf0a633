#include <algorithm>

#include "base/aligned.h"
#include "walsh/error.h"
#include "weights/stored/form.h"

namespace walsh {
namespace {

constexpr const StoredKind* kKinds[] = {&kStoredFp8,  &kStoredMxfp4, &kStoredCompressed,
                                        &kStoredGptq, &kStoredAwq,   &kStoredBnb};

}  // namespace

const StoredKind* stored_kind(StoredMethod::Kind kind) {
  const auto* found =
      std::ranges::find_if(kKinds, [&](const StoredKind* row) { return row->kind == kind; });
  return found == std::end(kKinds) ? nullptr : *found;
}

bool StoredParts::contains(std::string_view ending) const {
  return checkpoint_.find(stem_ + std::string(ending)) != nullptr;
}

std::optional<StoredArray> StoredParts::find(std::string_view ending) const {
  const TensorInfo* info = checkpoint_.find(stem_ + std::string(ending));
  if (info == nullptr) return std::nullopt;
  return StoredArray{info->dtype_text, info->shape, checkpoint_.data(*info), info->where()};
}

StoredArray StoredParts::get(std::string_view ending) const {
  if (const auto found = find(ending)) return *found;
  throw Error(ErrorCode::bad_input,
              checkpoint_.folder() + ": tensor " + stem_ + std::string(ending),
              "the checkpoint lacks this tensor");
}

Tensor StoredMatrix::load(const Format& format, int64_t first, int64_t count) const {
  if (!format.dense) return encode(format, first, count);
  Tensor tensor;
  tensor.format = &format;
  tensor.rows = count;
  tensor.cols = cols_;
  const auto size = static_cast<size_t>(count * cols_) * dtype_size(format.dtype);
  auto memory = std::make_shared<AlignedArray<std::byte>>(size);
  decode(first, count, memory->data());
  tensor.data = {memory->data(), size};
  tensor.owner = std::move(memory);
  return tensor;
}

Tensor StoredMatrix::encode(const Format&, int64_t, int64_t) const {
  throw Error(ErrorCode::internal, "stored matrix", "it has no codes");
}

}  // namespace walsh
