// Makes models of published shapes with random weights for measuring speed. A name stands for such
// a model, so nothing is read from a file.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "codec/weight_source.h"

namespace walsh {

// Returns whether `path` is "synthetic:SHAPE:TYPE", such as synthetic:8b:itq3_s. It names a shape
// of SyntheticSource with all matrices in that format. In synthetic:8b:itq3_s,tq4 the second format
// is that of embedding and head.
bool names_synthetic(std::string_view path);
// Opens the model of such a name; its tokenizer has bytes and short words, a token for every row of
// the embedding. Throws usage for a malformed name, an unknown shape or an unknown format.
std::unique_ptr<WeightSource> open_synthetic(const std::string& path);

}  // namespace walsh
