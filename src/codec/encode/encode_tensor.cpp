#include "codec/encode/encode_tensor.h"

#include <memory>
#include <vector>

#include "codec/codec.h"
#include "codec/encode/encode_source.h"
#include "codec/trellis/tile_device.h"
#include "walsh/error.h"

namespace walsh {
namespace {

void encode(const Codec& codec, const detail::EncodeCall& call) {
  if (call.feedback && call.outputs && codec.encode_two_sided) return codec.encode_two_sided(call);
  if (call.feedback && codec.encode_with_feedback) return codec.encode_with_feedback(call);
  codec.encode(call);
}

// Returns false if the device does not know the code or has no memory for the search. It may hold
// the weights of a model that is encoded while it is loaded.
bool encoded_on(detail::TileDevice* device, const Codec& codec, detail::EncodeCall call) {
  if (!device || !codec.searches_tiles || !device->searches(*call.tensor.format)) return false;
  try {
    call.device = device;
    encode(codec, call);
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
  const Codec& codec = codec_of(format);
  const detail::EncodeCall call{tensor, options, read_rows, *storage,
                                pool,   errors,  feedback,  outputs};
  if (!encoded_on(device, codec, call)) encode(codec, call);
  errors.total(squared_error, squared_norm);
  return tensor;
}

}  // namespace walsh
