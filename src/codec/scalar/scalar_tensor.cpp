#include "codec/scalar/scalar_tensor.h"

#include <memory>

namespace walsh::detail {

ScalarPasses::ScalarPasses(const Tensor& tensor, const TensorStorage& storage)
    : tensor_(tensor), format_(*tensor.format), padded_(padded_cols(format_, tensor.cols)) {
  size_t next = 0;
  for (int pass = 0; pass < format_.passes; ++pass) {
    rotators_.emplace_back(tensor.rotation[pass], padded_);
    const ScalarCode& code = format_.code[pass];
    PassOutput& out = outputs_[pass];
    out.codes = storage.arrays[next++].data();
    out.scales = storage.halves(next++);
    if (code.has_offset) out.offsets = storage.halves(next++);
    if (code.sub_group != 0) out.sub_scales = storage.halves(next++);
  }
}

PassOutput ScalarPasses::output(int pass, int64_t row) const {
  const ScalarCode& code = format_.code[pass];
  PassOutput out = outputs_[pass];
  out.codes += row * code_bytes_per_row(code, padded_);
  out.scales += row * groups_per_row(code, padded_);
  if (code.has_offset) out.offsets += row * groups_per_row(code, padded_);
  if (code.sub_group != 0) out.sub_scales += row * sub_groups_per_row(code, padded_);
  return out;
}

void ScalarPasses::rotate(int pass, int64_t row, const float* x, float* out) const {
  rotate_row(rotators_[static_cast<size_t>(pass)], x, tensor_.cols, row, out);
}

void ScalarPasses::subtract(int pass, int64_t row, float* buffer, float* x) const {
  decode_pass_row(tensor_, pass, row, buffer);
  rotators_[static_cast<size_t>(pass)].invert(buffer);
  for (int64_t i = 0; i < tensor_.cols; ++i)
    x[i] -= buffer[i];
}

void ScalarPasses::encode(int pass, const EncodeOptions& options, int64_t row, float* buffer,
                          float* x) const {
  rotate(pass, row, x, buffer);
  encode_rows(format_.code[pass], options, buffer, 1, padded_, output(pass, row));
  subtract(pass, row, buffer, x);
}

void encode_scalar(const Tensor& tensor, const EncodeOptions& options, ReadRows read_rows,
                   const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors) {
  const ScalarPasses passes(tensor, storage);
  encode_each_row(tensor, read_rows, pool, errors, [&](int64_t row, float* x) {
    const auto buffer =
        std::make_unique_for_overwrite<float[]>(static_cast<size_t>(passes.padded()));
    for (int pass = 0; pass < tensor.format->passes; ++pass)
      passes.encode(pass, options, row, buffer.get(), x);
  });
}

}  // namespace walsh::detail
