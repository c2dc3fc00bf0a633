// Encodes on a GPU. It gives the same bytes as encode_tensor, for every scalar format, both
// efforts, and rotation hadamard or none. For trellis formats it searches the tiles. The header is
// plain C++; a build without CUDA has the class, but no device for it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "base/thread_pool.h"
#include "codec/scalar/encoder.h"
#include "codec/tensor.h"

namespace walsh::detail {
class TileDevice;
}

namespace walsh::cuda {

struct EncodedMatrix {
  const Format* format = nullptr;
  int64_t rows = 0, cols = 0;
  Rotation rotation[2];
  // These are the stored arrays as in the file, in the order of array_specs.
  std::vector<Buffer> arrays;
  // These are the sums that encode_tensor reports. The order of the additions differs, so they
  // agree only to 1e-12.
  double squared_error = 0, squared_norm = 0;
};

// Encodes tensors on one device. Sources are dense tensors in host memory (a mapped checkpoint), or
// on the device, where they are read in place. Slices of rows in host memory go through two pinned
// buffers, so that reading, sending and encoding overlap. Besides the result the device memory is
// bounded: two slices, plus one of floats for residual formats. Only one caller may use an encoder
// at a time.
class GpuEncoder {
 public:
  static constexpr uint64_t kSliceBytes = uint64_t{32} << 20;

  // Uses device `index`, which must be the current device of the calling thread in all later calls.
  // `pool` divides the reading of the source and may be null. Throws usage if there is no such
  // device, and limit if memory runs out.
  explicit GpuEncoder(int index, ThreadPool* pool = nullptr, uint64_t slice_bytes = kSliceBytes);
  ~GpuEncoder();

  // Returns whether encode() supports this. It does not support qr rotations, codes that are not
  // scalar, and one scale per row if a row exceeds the device's shared memory; the CPU must encode
  // these.
  bool supports(const Format& format, const Rotation (&rotation)[2], int64_t cols) const;

  // Balances `source` by `column_scales` ([cols] or empty), rotates and encodes it. The result is
  // complete on return. Throws bad_input, with an empty `where` and encode_tensor's reason, for the
  // first row that cannot be encoded, for an impossible shape and for what is not supported; throws
  // limit if memory runs out.
  EncodedMatrix encode(const Format& format, const Rotation (&rotation)[2],
                       const EncodeOptions& options, const Tensor& source,
                       std::span<const float> column_scales);
  // Returns the same as a tensor whose arrays stay on the device or are copied to the host.
  Tensor encode_on_device(const Format& format, const Rotation (&rotation)[2],
                          const EncodeOptions& options, const Tensor& source,
                          std::span<const float> column_scales, double* squared_error,
                          double* squared_norm);
  Tensor encode_to_host(const Format& format, const Rotation (&rotation)[2],
                        const EncodeOptions& options, const Tensor& source,
                        std::span<const float> column_scales, double* squared_error,
                        double* squared_norm);

  // Returns the device search for tiles of trellis codes, for encode_tensor. It lives as long as
  // the encoder.
  walsh::detail::TileDevice& tiles();
  // Returns searches for two tensors at once. Each is used by a thread of its own, whose current
  // device is this one. They must not be used together with tiles().
  std::vector<walsh::detail::TileDevice*> shared_tiles();

  // Computes the same as add_column_norms (quantize/source/balance.h) for a dense matrix, with the
  // same bits.
  void add_column_norms(const Tensor& source, std::span<double> norms);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh::cuda
