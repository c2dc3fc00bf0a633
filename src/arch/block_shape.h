// Reads the shape of the blocks of a matrix that share a scale.
#pragma once

#include <cstdint>

namespace walsh {

class ConfigReader;

struct BlockShape {
  int64_t rows = 0, cols = 0;
};

// Reads [rows, columns]; zeros if the key is absent. Throws bad_input for anything else.
BlockShape read_block_shape(ConfigReader& reader, const char* key);

}  // namespace walsh
