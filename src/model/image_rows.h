// An image takes some positions of a text. At these the layers read rows that the image's tower has
// made instead of the embeddings of tokens.
#pragma once

#include <cstdint>
#include <span>

namespace walsh {

// Holds the rows of one image in a sequence.
struct ImageRows {
  int64_t position = 0;           // The first row stands at this position.
  std::span<const float> values;  // The shape is [rows][hidden].
  // If true, its rows see each other in both directions, so they have to be evaluated in one batch.
  bool together = false;

  int64_t rows(int64_t hidden) const { return static_cast<int64_t>(values.size()) / hidden; }
};

// Names the rows of an image that are in a batch.
struct PlacedRows {
  int64_t row = 0, rows = 0;  // The batch has them at rows [row, row + rows).
  const float* values = nullptr;
  bool together = false;
};

// Names the positions [begin, end) of a sequence that see each other.
struct SeenTogether {
  int64_t begin = 0, end = 0;
};

}  // namespace walsh
