// Reads the shape of those blocks of a stored matrix that share a scale.
#pragma once

#include <cstdint>

namespace walsh {

class ConfigReader;

struct BlockShape {
  int64_t rows = 0, cols = 0;
};

// Reads a list [rows, columns]. Returns zeros if the key is absent; throws bad_input for anything
// else.
BlockShape read_block_shape(ConfigReader& reader, const char* key);

}  // namespace walsh
