// A codec is what everything else may ask of a kind of code without knowing which kinds exist. Each
// kind has a folder of its own, a room (codec/scalar, codec/trellis, codec/product, codec/plain),
// in which its fields, decoder, encoder, searches and packing lie for all devices, and fills one
// Codec. docs/formats/README.md ("A new kind of code") lists what a room needs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "base/function_ref.h"
#include "codec/op_count.h"
#include "codec/tensor.h"

namespace walsh {

class ErrorFeedback;
class ThreadPool;
struct EncodeOptions;
struct PanelMatrix;
// codec/encode/encode_tensor.h explains it.
using ReadRows = FunctionRef<void(int64_t row_begin, int64_t row_end, float* out)>;

namespace detail {
class ErrorSum;
class TileDevice;
struct TensorStorage;
}  // namespace detail

// These kernels compute with stored weights. codec/kernels.h has the table of them.
enum class Kernel : uint8_t {
  cpu_products,     // inputs in int8 or float32
  cpu_lookup,       // products by lookup, without decoding
  gpu_products,     // inputs in int8 or f16, and rows of an embedding
  gpu_weight_side,  // --rotate weights: the weights are rotated back instead of the inputs
  gpu_encoder       // the encoder, or its search
};

struct Codec {
  std::string_view name;
  bool slow_to_encode = false;  // takes minutes for a model on many cores; others take seconds

  // Returns the stored arrays of a pass of [rows, padded] weights, in file order.
  std::vector<PassField> (*fields)(const Format& format, int pass, int64_t rows, int64_t padded);
  // Decoding may need a table beside the other arrays, which the tensor stores or the format has.
  // These are its size and a function that returns it; 0 and null if a kind has none.
  uint64_t codebook_bytes = 0;
  std::span<const std::byte> (*codebook)(const Tensor& tensor) = nullptr;
  // Throws bad_input, with the name of the array, for arrays that no encoder makes and that kernels
  // cannot compute with; null if all are possible.
  void (*check)(const Tensor& tensor) = nullptr;

  // Dequantizes one row of a pass in its rotated basis to out[padded]. This is the specification.
  void (*decode_row)(const Tensor& tensor, int pass, int64_t row, float* out);
  // Writes the fp16 numbers whose product is the scale of a weight to `halves`, without those that
  // are powers of two. Returns how many there are: none, one or two.
  int (*scales)(const Tensor& tensor, int pass, int64_t row, int64_t col, uint16_t (&halves)[2]);
  // Returns the root mean square of the levels of a pass, if all codes are equally frequent.
  double (*level_rms)(const Format& format, int pass);

  // Encodes a tensor whose rows `read_rows` gives into `storage`, and adds up its errors.
  void (*encode)(const Tensor& tensor, const EncodeOptions& options, ReadRows read_rows,
                 const detail::TensorStorage& storage, ThreadPool& pool, detail::ErrorSum& errors);
  // Does the same with the errors of columns fed back into those behind them; null if it cannot.
  void (*encode_with_feedback)(const Tensor& tensor, const EncodeOptions& options,
                               const ErrorFeedback& feedback, ReadRows read_rows,
                               const detail::TensorStorage& storage, ThreadPool& pool,
                               detail::ErrorSum& errors) = nullptr;
  // These do what the first two do, with the tiles searched by a device that knows the code; null
  // for codes that have no tiles.
  void (*encode_on)(detail::TileDevice& device, const Tensor& tensor, const EncodeOptions& options,
                    ReadRows read_rows, const detail::TensorStorage& storage, ThreadPool& pool,
                    detail::ErrorSum& errors) = nullptr;
  void (*encode_with_feedback_on)(detail::TileDevice& device, const Tensor& tensor,
                                  const EncodeOptions& options, const ErrorFeedback& feedback,
                                  ReadRows read_rows, const detail::TensorStorage& storage,
                                  ThreadPool& pool, detail::ErrorSum& errors) = nullptr;
  // Feeds the errors of outputs back as well, on a device or without; null if it cannot.
  void (*encode_two_sided)(detail::TileDevice* device, const Tensor& tensor,
                           const EncodeOptions& options, const ErrorFeedback& inputs,
                           const ErrorFeedback& outputs, ReadRows read_rows,
                           const detail::TensorStorage& storage, ThreadPool& pool,
                           detail::ErrorSum& errors) = nullptr;
  // Returns about how many nanoseconds a weight takes on one core. They were measured with AVX-512;
  // their ratios are not far from those on other processors.
  double (*cost)(const Format& format, const EncodeOptions& options);
  // The first returns whether the search for scales has starts to choose from (--effort), the
  // second whether --scale changes them.
  bool (*searches)(const Format& format, const EncodeOptions& options);
  bool (*fits_scales)(const Format& format);

  // The first returns the profile of a format that compressing while loading takes (--effort fast),
  // the second that with the most effort, whose bound is known; null, as all that follow, if a kind
  // has no profiles.
  const Format& (*fast_profile)(const Format& format) = nullptr;
  const Format& (*full_profile)(const Format& format) = nullptr;
  // The first returns the profile whose scales follow more closely how large the weights are, null
  // if the format has these already; the second the share of the variance of rotated rows that the
  // scales of the format do not explain.
  const Format* (*finer_scales)(const Format& format) = nullptr;
  double (*scale_misfit)(const Rotation& rotation, int64_t rows, int64_t cols, ReadRows read_rows,
                         ThreadPool& pool) = nullptr;
  // Returns the profile of that name, null if there is none.
  const Format* (*find_profile)(std::string_view name) = nullptr;
  // Returns a sentence about a profile, for a user who named it; empty for what needs none.
  std::string (*about)(const Format& format, const std::string& typed) = nullptr;

  // Repacks a pass for the kernels of the CPU (codec/panels.h); null if they read it as stored.
  PanelMatrix (*pack)(const Tensor& tensor, int pass) = nullptr;
  void (*unpack)(const PanelMatrix& w, std::span<std::byte> codes) = nullptr;
  // Returns whether a kernel of this kind computes with the format.
  bool (*has_kernel)(const Format& format, Kernel kernel);
  // Counts the arithmetic of a product with [rows, padded] weights (model/op_count.h).
  OpCount (*count)(const Format& format, int64_t rows, int64_t padded, int planes);
};

// Each CodeKind has one, in plain/plain.cpp, scalar/scalar.cpp, trellis/trellis.cpp and
// product/product.cpp.
extern const Codec kPlainCodec, kScalarCodec, kTrellisCodec, kProductCodec;

// Returns the codec of any format.
const Codec& codec_of(const Format& format);
// Returns all of them, in the order of CodeKind.
std::span<const Codec* const> all_codecs();

// Throws as Codec::check.
void check_arrays(const Tensor& tensor);

namespace detail {

uint16_t half_bits(std::span<const std::byte> halves, int64_t index);
float half_at(std::span<const std::byte> halves, int64_t index);
// Returns count * element; throws on overflow.
uint64_t bytes_of(int64_t count, uint64_t element);

}  // namespace detail

}  // namespace walsh
