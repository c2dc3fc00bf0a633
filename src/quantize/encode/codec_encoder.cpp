#include "quantize/encode/codec_encoder.h"

#include <cmath>

#include "quantize/feedback/feedback_encoder.h"
#include "quantize/product/product_tensor.h"
#include "quantize/scalar/encode_rows.h"
#include "quantize/trellis/trellis_tensor.h"

namespace walsh::detail {
namespace {

// Costs are measured with AVX-512, and not far from the ratios on others.
double dense_cost(const Format&, const EncodeOptions&) {
  return 2;
}

double pass_cost(const ScalarCode& code, const EncodeOptions& options) {
  if (code.fit == ScaleFit::absmax) return 11;
  if (code.fit == ScaleFit::sigma) return 8;
  const bool searched = options.effort == Effort::full && options.scale_rule == ScaleRule::search;
  const double search = searched ? 14 + 2 * std::ldexp(1.0, code.bits) : 8;
  return code.sub_group == 0 ? search : 1.8 * search;
}

double scalar_cost(const Format& format, const EncodeOptions& options) {
  double cost = 0;
  for (int pass = 0; pass < format.passes; ++pass)
    cost += pass_cost(format.code[pass], options);
  return cost;
}

double trellis_cost(const Format& format, const EncodeOptions& options) {
  const TrellisCode& code = format.trellis;
  const double state = code.rule == TrellisRule::table ? 0.14 : 0.057;
  const double search = 40 + state * std::ldexp(1.0, code.state_bits) / code.values;
  return options.effort == Effort::full ? search : 0.7 * search;
}

double product_cost(const Format& format, const EncodeOptions& options) {
  return (format.product.own_codebook ? 900 : 570) * (options.effort == Effort::full ? 1 : 0.3);
}

constexpr CodecEncoder kDense = {encode_rows, nullptr, dense_cost};
constexpr CodecEncoder kScalar = {encode_rows, encode_scalar_with_feedback, scalar_cost, nullptr,
                                  nullptr,     encode_scalar_two_sided};
constexpr CodecEncoder kTrellis = {
    encode_trellis,    encode_trellis_with_feedback,    trellis_cost,
    encode_trellis_on, encode_trellis_with_feedback_on, encode_trellis_two_sided};
constexpr CodecEncoder kProduct = {encode_product, nullptr, product_cost,
                                   nullptr,        nullptr, encode_product_two_sided};

}  // namespace

const CodecEncoder& encoder_of(const Format& format) {
  switch (format.kind) {
    case CodeKind::none:
      return kDense;
    case CodeKind::scalar:
      return kScalar;
    case CodeKind::trellis:
      return kTrellis;
    case CodeKind::product:
      break;
  }
  return kProduct;
}

}  // namespace walsh::detail
