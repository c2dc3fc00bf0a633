// What the quantizer asks of a kind of code (formats/codec.h) without knowing which kinds there
// are.
#pragma once

#include "base/thread_pool.h"
#include "quantize/encode/encode_source.h"
#include "quantize/feedback/error_feedback.h"
#include "quantize/scalar/encoder.h"

namespace walsh::detail {

struct CodecEncoder {
  // Encodes a tensor whose rows `read_rows` gives into `storage`, and adds up its errors.
  void (*encode)(const Tensor& tensor, const EncodeOptions& options, ReadRows read_rows,
                 const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);
  // The same with the errors of columns fed back into those behind them; null if it cannot.
  void (*encode_with_feedback)(const Tensor& tensor, const EncodeOptions& options,
                               const ErrorFeedback& feedback, ReadRows read_rows,
                               const TensorStorage& storage, ThreadPool& pool, ErrorSum& errors);
  // Nanoseconds that a weight takes on one core, about (time_estimate.h).
  double (*cost)(const Format& format, const EncodeOptions& options);
  // The first two with the tiles searched by a device that knows the code; null for codes that have
  // no tiles.
  void (*encode_on)(TileDevice& device, const Tensor& tensor, const EncodeOptions& options,
                    ReadRows read_rows, const TensorStorage& storage, ThreadPool& pool,
                    ErrorSum& errors) = nullptr;
  void (*encode_with_feedback_on)(TileDevice& device, const Tensor& tensor,
                                  const EncodeOptions& options, const ErrorFeedback& feedback,
                                  ReadRows read_rows, const TensorStorage& storage,
                                  ThreadPool& pool, ErrorSum& errors) = nullptr;
  // With the errors of outputs fed back as well, on a device or without; null if it cannot.
  void (*encode_two_sided)(TileDevice* device, const Tensor& tensor, const EncodeOptions& options,
                           const ErrorFeedback& inputs, const ErrorFeedback& outputs,
                           ReadRows read_rows, const TensorStorage& storage, ThreadPool& pool,
                           ErrorSum& errors) = nullptr;
};

// Returns the encoder of any format.
const CodecEncoder& encoder_of(const Format& format);

}  // namespace walsh::detail
