// A codec is all that other code may ask of a kind of code (scalar, trellis, product, plain)
// without knowing which kinds exist. Each kind has a folder of its own, called a room
// (codec/scalar, codec/trellis, codec/product, codec/plain), with its fields, decoder, encoder,
// searches and packing for all devices. The room fills one Codec. docs/formats/README.md ("A new
// kind of code") lists what a room needs.
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
// codec/encode/encode_tensor.h explains this function.
using ReadRows = FunctionRef<void(int64_t row_begin, int64_t row_end, float* out)>;

namespace detail {
struct EncodeCall;
}

// Names the kernels that compute with stored weights. codec/kernels.h has the table of them.
enum class Kernel : uint8_t {
  cpu_products,     // Products on CPUs take inputs in int8 or float32.
  cpu_lookup,       // They look products up instead of decoding weights.
  gpu_products,     // Kernels take inputs in int8 or f16, and look up rows of an embedding.
  gpu_weight_side,  // They rotate weights back instead of the inputs (--rotate weights).
  gpu_encoder       // It is the encoder, or its search.
};

struct Codec {
  std::string_view name;
  // If true, encoding a model takes minutes on many cores; other kinds take seconds.
  bool slow_to_encode = false;

  // Returns the stored arrays of a pass of [rows, padded] weights, in the order of the file.
  std::vector<PassField> (*fields)(const Format& format, int pass, int64_t rows, int64_t padded);
  // Decoding may need a table beside the other arrays, which the tensor stores or the format has.
  // This is its size in bytes, 0 if the kind has none, and a function that returns it, else null.
  uint64_t codebook_bytes = 0;
  std::span<const std::byte> (*codebook)(const Tensor& tensor) = nullptr;
  // Throws bad_input with the name of the array if arrays hold what no encoder writes and kernels
  // cannot compute with. It is null for kinds whose arrays may hold anything.
  void (*check)(const Tensor& tensor) = nullptr;

  // Dequantizes one row of a pass in its rotated basis to out[padded]. This is the specification.
  void (*decode_row)(const Tensor& tensor, int pass, int64_t row, float* out);
  // Writes to `halves` the fp16 numbers whose product is the scale of a weight, except powers of
  // two among them. Returns how many it wrote: none, one or two.
  int (*scales)(const Tensor& tensor, int pass, int64_t row, int64_t col, uint16_t (&halves)[2]);
  // Returns the root mean square of the levels of a pass, assuming that all codes are equally
  // frequent.
  double (*level_rms)(const Format& format, int pass);

  // These encode a tensor (codec/encode/encode_source.h): as it is; with the errors of columns fed
  // back into later columns (codec/feedback/error_feedback.h); with the errors of outputs fed back
  // as well (codec/feedback/two_sided.h). The last two are null if the kind does not support them.
  void (*encode)(const detail::EncodeCall& call);
  void (*encode_with_feedback)(const detail::EncodeCall& call) = nullptr;
  void (*encode_two_sided)(const detail::EncodeCall& call) = nullptr;
  // If true, all three use the device of the call to search tiles. Other kinds have no tiles.
  bool searches_tiles = false;
  // Returns about how many nanoseconds encoding a weight takes on one core. The numbers were
  // measured with AVX-512; their ratios on other processors are not far from these.
  double (*cost)(const Format& format, const EncodeOptions& options);
  // `searches` returns whether the search for scales can choose among starts (--effort), the
  // function after it whether --scale changes the scales.
  bool (*searches)(const Format& format, const EncodeOptions& options);
  bool (*fits_scales)(const Format& format);

  // The first returns the profile of a format for compressing while loading (--effort fast), the
  // second the profile with the most effort, whose bound is known. These and all that follow are
  // null if a kind has no profiles.
  const Format& (*fast_profile)(const Format& format) = nullptr;
  const Format& (*full_profile)(const Format& format) = nullptr;
  // The first returns the profile whose scales follow the sizes of weights more closely, null if
  // the format has these already. The second returns the share of the variance of rotated rows that
  // the scales of the format do not explain.
  const Format* (*finer_scales)(const Format& format) = nullptr;
  double (*scale_misfit)(const Rotation& rotation, int64_t rows, int64_t cols, ReadRows read_rows,
                         ThreadPool& pool) = nullptr;
  // Returns the profile with that name, null if there is none.
  const Format* (*find_profile)(std::string_view name) = nullptr;
  // Returns a sentence about a profile, for a user who named it; empty if there is nothing to say.
  std::string (*about)(const Format& format, const std::string& typed) = nullptr;

  // Repacks a pass for the kernels of the CPU (codec/panels.h). It is null if they read the stored
  // arrays.
  PanelMatrix (*pack)(const Tensor& tensor, int pass) = nullptr;
  void (*unpack)(const PanelMatrix& w, std::span<std::byte> codes) = nullptr;
  // Returns whether a kernel of this kind computes with the format.
  bool (*has_kernel)(const Format& format, Kernel kernel);
  // Counts the arithmetic of a product with [rows, padded] weights (model/op_count.h).
  OpCount (*count)(const Format& format, int64_t rows, int64_t padded, int planes);
};

// Each CodeKind has one of these codecs, in plain/plain.cpp, scalar/scalar.cpp, trellis/trellis.cpp
// and product/product.cpp.
extern const Codec kPlainCodec, kScalarCodec, kTrellisCodec, kProductCodec;

// Returns the codec of any format.
const Codec& codec_of(const Format& format);
// Returns all codecs in the order of CodeKind.
std::span<const Codec* const> all_codecs();

// Throws what Codec::check throws, if the kind has one.
void check_arrays(const Tensor& tensor);

namespace detail {

uint16_t half_bits(std::span<const std::byte> halves, int64_t index);
float half_at(std::span<const std::byte> halves, int64_t index);
// Returns count * element. Throws if that overflows.
uint64_t bytes_of(int64_t count, uint64_t element);

}  // namespace detail

}  // namespace walsh
