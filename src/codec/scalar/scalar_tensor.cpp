#include "codec/scalar/scalar_tensor.h"

#include <memory>

#include "codec/scalar/scalar_passes.h"

namespace walsh::detail {

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
