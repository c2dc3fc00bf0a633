// `walsh bench --count`: the arithmetic of decoding one token (model/op_count.h).
#pragma once

#include <string>
#include <vector>

#include "model/model.h"

namespace walsh::cli {

// A row for the embedding, every layer (equal neighbours together), the head and the sum. `output`
// is md, csv or json.
std::string count_model(const Model& model, const std::string& output);

// A row per format and shape. Formats: a selection if empty; shapes: for parse_shape. Throws usage.
std::string count_matrices(const std::vector<std::string>& types,
                           const std::vector<std::string>& shapes, const std::string& output);

}  // namespace walsh::cli
