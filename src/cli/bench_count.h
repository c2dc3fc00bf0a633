// `walsh bench --count` counts the arithmetic of decoding one token (model/op_count.h).
#pragma once

#include <string>
#include <vector>

#include "model/model.h"

namespace walsh::cli {

// Gives one row each for the embedding, every layer (equal neighbours combined), the head and the
// sum. `output` is md, csv or json.
std::string count_model(const Model& model, const std::string& output);

// Gives one row per format and shape. Empty `types` means a selection; `shapes` are for
// parse_shape. Throws usage.
std::string count_matrices(const std::vector<std::string>& types,
                           const std::vector<std::string>& shapes, const std::string& output);

}  // namespace walsh::cli
