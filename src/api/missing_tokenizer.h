// Tells users what a model without a tokenizer can do.
#pragma once

#include <string>

#include "codec/weight_source.h"

namespace walsh {

// Returns a text which says that the source has no tokenizer and what works without one; it is
// empty if the source has one.
std::string missing_tokenizer(const WeightSource& source);

}  // namespace walsh
