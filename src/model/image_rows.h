// Rows of images stand in a text where a prompt has tokens in their place: the layers read them
// instead of the embeddings of these tokens.
#pragma once

#include <cstdint>
#include <span>

namespace walsh {

// Names the rows of one image in a sequence.
struct ImageRows {
  int64_t position = 0;           // of the first row
  std::span<const float> values;  // [rows][hidden]
  // Its rows see each other in both directions, so they are evaluated in one batch.
  bool together = false;

  int64_t rows(int64_t hidden) const { return static_cast<int64_t>(values.size()) / hidden; }
};

// Names those rows of an image that are in a batch.
struct PlacedRows {
  int64_t row = 0, rows = 0;  // of the batch
  const float* values = nullptr;
  bool together = false;
};

// Names the positions [begin, end) of a sequence that see each other.
struct SeenTogether {
  int64_t begin = 0, end = 0;
};

}  // namespace walsh
