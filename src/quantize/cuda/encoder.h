// Encoding on a GPU: the same bytes as encode_tensor gives, for every scalar format, both efforts,
// rotation hadamard or none; of trellis formats the search for tiles. Plain C++; a build without
// CUDA has the class and no device for it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "base/thread_pool.h"
#include "formats/tensor.h"
#include "quantize/scalar/encoder.h"

namespace walsh::detail {
class TileDevice;
}

namespace walsh::cuda {

// A coded or converted matrix on the device.
struct EncodedMatrix {
  const Format* format = nullptr;
  int64_t rows = 0, cols = 0;
  Rotation rotation[2];
  std::vector<Buffer> arrays;  // the stored arrays in file layout, in the order of array_specs
  // As encode_tensor reports them; the order of the additions is another, so they agree to 1e-12.
  double squared_error = 0, squared_norm = 0;
};

// Sources are plain tensors in host memory (a mapped checkpoint). Slices of rows go through two
// pinned buffers, so that reading, sending and encoding overlap and the device memory besides the
// result stays bounded: two slices, and for residual formats one of floats. One caller at a time.
class GpuEncoder {
 public:
  static constexpr uint64_t kSliceBytes = uint64_t{32} << 20;

  // Uses device `index`, which must be the device of the calling thread in every later call. `pool`
  // shares out the reading of the source and may be null. Throws usage if there is no such device,
  // limit if memory runs out.
  explicit GpuEncoder(int index, ThreadPool* pool = nullptr, uint64_t slice_bytes = kSliceBytes);
  ~GpuEncoder();

  // Whether encode() knows this; the CPU must do the rest (qr rotations, codes that are not scalar,
  // one scale per row where a row exceeds the device's shared memory).
  bool supports(const Format& format, const Rotation (&rotation)[2], int64_t cols) const;

  // `source` balanced by `column_scales` ([cols] or empty), rotated and encoded. Complete on
  // return. Throws bad_input with an empty `where` and encode_tensor's reason for the first row
  // that cannot be encoded, for an impossible shape and for what is not supported; limit if memory
  // runs out.
  EncodedMatrix encode(const Format& format, const Rotation (&rotation)[2],
                       const EncodeOptions& options, const Tensor& source,
                       std::span<const float> column_scales);
  // The same as a tensor whose arrays stay on the device, or are copied to the host.
  Tensor encode_on_device(const Format& format, const Rotation (&rotation)[2],
                          const EncodeOptions& options, const Tensor& source,
                          std::span<const float> column_scales, double* squared_error,
                          double* squared_norm);
  Tensor encode_to_host(const Format& format, const Rotation (&rotation)[2],
                        const EncodeOptions& options, const Tensor& source,
                        std::span<const float> column_scales, double* squared_error,
                        double* squared_norm);

  // Searches the tiles of trellis codes for encode_tensor, as long as the encoder lives.
  walsh::detail::TileDevice& tiles();
  // The same for two tensors at once, each on a thread of its own whose device is this one; not
  // beside tiles().
  std::vector<walsh::detail::TileDevice*> shared_tiles();

  // add_column_norms (quantize/source/balance.h) of a plain matrix, with the same bits.
  void add_column_norms(const Tensor& source, std::span<double> norms);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh::cuda
