// Models of published shapes with random weights, by name instead of from a file: for measuring
// speed of whatever takes a model.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "formats/weight_source.h"

namespace walsh {

// "synthetic:SHAPE:TYPE", as synthetic:8b:itq3_s: the shapes of SyntheticSource with all matrices
// in the format; or embedding and head in another one, as synthetic:8b:itq3_s,tq4.
bool names_synthetic(std::string_view path);
// With a tokenizer of bytes and short words, one for every row of the embedding. Throws usage for
// another form, an unknown shape or format.
std::unique_ptr<WeightSource> open_synthetic(const std::string& path);

}  // namespace walsh
