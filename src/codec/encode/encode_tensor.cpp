#include "codec/encode/encode_tensor.h"

#include <memory>
#include <vector>

#include "codec/codec.h"
#include "codec/encode/encode_source.h"
#include "codec/trellis/tile_device.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Returns false if the device does not know the code or has no memory for the search. It may hold
// the weights of a model that is encoded while it is loaded.
bool encoded_on(detail::TileDevice* device, const Tensor& tensor, const EncodeOptions& options,
                ReadRows read_rows, const ErrorFeedback* feedback, const ErrorFeedback* outputs,
                const detail::TensorStorage& storage, ThreadPool& pool, detail::ErrorSum& errors) {
  const Codec& encoder = codec_of(*tensor.format);
  if (!device || !encoder.encode_on || !device->searches(*tensor.format)) return false;
  try {
    if (feedback && outputs) {
      encoder.encode_two_sided(device, tensor, options, *feedback, *outputs, read_rows, storage,
                               pool, errors);
    } else if (feedback) {
      encoder.encode_with_feedback_on(*device, tensor, options, *feedback, read_rows, storage, pool,
                                      errors);
    } else {
      encoder.encode_on(*device, tensor, options, read_rows, storage, pool, errors);
    }
    return true;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::limit || device->shared()) throw;
    return false;
  }
}

}  // namespace

Tensor encode_tensor(const Format& format, const Rotation (&rotation)[2],
                     const EncodeOptions& options, int64_t rows, int64_t cols, ReadRows read_rows,
                     ThreadPool& pool, double* squared_error, double* squared_norm,
                     const ErrorFeedback* feedback, detail::TileDevice* device,
                     const ErrorFeedback* outputs) {
  const std::shared_ptr<detail::TensorStorage> storage =
      detail::allocate_tensor(format, rows, cols);
  Tensor tensor;
  tensor.format = &format;
  tensor.rows = rows;
  tensor.cols = cols;
  for (int pass = 0; pass < format.passes; ++pass)
    tensor.rotation[pass] = rotation[pass];
  const std::vector<std::span<const std::byte>> arrays(storage->arrays.begin(),
                                                       storage->arrays.end());
  bind_arrays(tensor, arrays);
  tensor.owner = storage;

  detail::ErrorSum errors(rows);
  const Codec& encoder = codec_of(format);
  if (!encoded_on(device, tensor, options, read_rows, feedback, outputs, *storage, pool, errors)) {
    if (feedback && outputs && encoder.encode_two_sided) {
      encoder.encode_two_sided(nullptr, tensor, options, *feedback, *outputs, read_rows, *storage,
                               pool, errors);
    } else if (feedback && encoder.encode_with_feedback) {
      encoder.encode_with_feedback(tensor, options, *feedback, read_rows, *storage, pool, errors);
    } else {
      encoder.encode(tensor, options, read_rows, *storage, pool, errors);
    }
  }
  errors.total(squared_error, squared_norm);
  return tensor;
}

}  // namespace walsh
