#define WALSH_LANES 4
#include "codec/scalar/encoder_impl.h"

namespace walsh::detail {

const EncoderKernels kEncoderRef = {abs_max,  sum,   sum_squares, scale_shift,
                                    products, error, assign};

}  // namespace walsh::detail
