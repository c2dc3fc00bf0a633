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
  subtract_decoded(tensor_, pass, rotators_[static_cast<size_t>(pass)], row, buffer, x);
}

void ScalarPasses::encode(int pass, const EncodeOptions& options, int64_t row, float* buffer,
                          float* x) const {
  rotate(pass, row, x, buffer);
  encode_rows(format_.code[pass], options, buffer, 1, padded_, output(pass, row));
  subtract(pass, row, buffer, x);
}

void encode_scalar(const EncodeCall& call) {
  const ScalarPasses passes(call.tensor, call.storage);
  encode_each_row(call, [&](int64_t row, float* x) {
    const auto buffer =
        std::make_unique_for_overwrite<float[]>(static_cast<size_t>(passes.padded()));
    for (int pass = 0; pass < call.tensor.format->passes; ++pass)
      passes.encode(pass, call.options, row, buffer.get(), x);
  });
}

}  // namespace walsh::detail
