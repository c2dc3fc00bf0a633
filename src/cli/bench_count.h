// `walsh bench --count` counts the arithmetic of decoding one token (model/op_count.h).
#pragma once

#include <string>
#include <vector>

#include "model/model.h"

namespace walsh::cli {

// Returns a table with one row each for the embedding, every layer (equal neighbours are combined),
// the head and the sum. `output` is md, csv or json.
std::string count_model(const Model& model, const std::string& output);

// Returns a table with one row per format and shape. Empty `types` means a selection; parse_shape
// reads `shapes`. Throws usage.
std::string count_matrices(const std::vector<std::string>& types,
                           const std::vector<std::string>& shapes, const std::string& output);

}  // namespace walsh::cli
