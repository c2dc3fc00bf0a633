// Encodes a whole tensor in a product format, with the universal codebook or one of its own.
#pragma once

#include "codec/encode/encode_source.h"

namespace walsh::detail {

void encode_product(const EncodeCall& call);

// Encodes with errors fed back in two directions (codec/feedback/two_sided.h).
void encode_product_two_sided(const EncodeCall& call);

}  // namespace walsh::detail
