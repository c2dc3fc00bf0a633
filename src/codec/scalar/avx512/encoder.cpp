#define WALSH_LANES 16
#include "codec/scalar/encoder_impl.h"

namespace walsh::detail {

const EncoderKernels kEncoderAvx512 = {abs_max,  sum,   sum_squares, scale_shift,
                                       products, error, assign};

}  // namespace walsh::detail
