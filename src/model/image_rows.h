// An image takes some positions of a text. At these the layers read rows that the image's tower has
// made instead of the embeddings of tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace walsh {

// Holds the rows of one image in a sequence.
struct ImageRows {
  int64_t position = 0;  // The first row stands at this position.
  int64_t rows = 0;
  // The shape is [rows][1 + n][hidden]. The first of a row's 1 + n parts replaces the embedding,
  // the others are added to the outputs of the first n layers.
  std::span<const float> values;
  // If true, its rows see each other in both directions, so they have to be evaluated in one batch.
  bool together = false;
  // If it is not 0, the rows are those of a grid with so many columns, and stand at its places for
  // a rope with three axes.
  int64_t columns = 0;

  int64_t end() const { return position + rows; }
  // Returns how many values a row has.
  int64_t width() const { return static_cast<int64_t>(values.size()) / rows; }
};

// Names the rows of an image that are in a batch.
struct PlacedRows {
  int64_t row = 0, rows = 0;      // The batch has them at rows [row, row + rows).
  const float* values = nullptr;  // The shape is [rows][width].
  int64_t width = 0;
  bool together = false;
};

// Names the positions [begin, end) of a sequence that see each other.
struct SeenTogether {
  int64_t begin = 0, end = 0;
};

// Says where a rope has a token: in time, in the rows and in the columns of an image
// (RopeConfig::sections).
using AxisPositions = std::array<int64_t, 3>;

}  // namespace walsh
