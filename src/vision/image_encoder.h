// Turns the file of an image into rows that stand in a prompt where the embeddings of tokens stand.
// It decodes and preprocesses the image, then runs the model's vision tower and projector on the
// CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/weight_source.h"
#include "io/checksum.h"
#include "text/tokenizer.h"

namespace walsh {

// Limits how much a file that somebody sent may cost.
struct ImageLimits {
  uint64_t bytes = uint64_t{32} << 20;  // the file may have this many bytes
  // Width times height may be this much, before anything is resized.
  int64_t pixels = int64_t{64} << 20;
  int64_t milliseconds = 10000;  // decoding the file may take this long
};

struct ImageEmbedding {
  int64_t rows = 0;
  // A row has as many values as the model's residual stream, or a multiple of that.
  int64_t width = 0;
  // The shape is [rows][width]. The first values of a row take the place of a token's embedding,
  // after the family's multiplication of those. The others are added to the outputs of the first
  // layers of the text, one after the other.
  std::vector<float> values;
  // These replace one placeholder of the image in a prompt. Tokens that begin, divide and end an
  // image stand for themselves, and `image_token` stands for each of `rows`, in order.
  std::vector<int32_t> tokens;
  int32_t image_token = 0;
  // Rows of one image see each other in both directions (Gemma 3).
  bool bidirectional = false;
  // If it is not 0, the rope of the text has three axes (Qwen), and rows stand in a grid with so
  // many columns.
  int64_t grid_columns = 0;
  // This is the checksum of the file's bytes; the same content gives the same rows.
  Checksum content;
};

class ImageEncoder {
 public:
  virtual ~ImageEncoder() = default;

  // Opens the tower of the model that `source` and `tokenizer` were opened from. Returns null where
  // the model has none, or where its file has only the text part; missing_tower says which. The
  // encoder has `threads` threads of its own; 0 means one per core. Throws bad_input for a tower
  // that is not supported or whose tensors are missing.
  static std::shared_ptr<const ImageEncoder> open(const WeightSource& source,
                                                  const Tokenizer& tokenizer, int threads = 0,
                                                  const ImageLimits& limits = {});

  // Returns the token that chat templates write for an image, which `tokens` of its embedding
  // replace.
  virtual int32_t placeholder() const = 0;
  // The first returns the placeholder's text, the second the text that replaces it before the
  // prompt is tokenized. Some families put marks around it, which become tokens together with the
  // text beside them.
  virtual std::string_view placeholder_text() const = 0;
  virtual std::string_view prompt_text() const = 0;
  // Any thread may call this; calls wait for each other. `where` names the image in messages.
  // Throws bad_input for a file that is no JPEG, PNG or WebP image, is damaged or has a shape that
  // the model refuses, limit for one beyond the limits, and usage, before the tower runs, for one
  // that would have more than `most_rows` rows.
  virtual ImageEmbedding encode(std::span<const std::byte> file, const std::string& where,
                                int64_t most_rows) const = 0;
  ImageEmbedding encode(std::span<const std::byte> file, const std::string& where) const {
    return encode(file, where, std::numeric_limits<int64_t>::max());
  }
};

// Says in one sentence why ImageEncoder::open returns null for this source; empty if it does not.
std::string missing_tower(const WeightSource& source);

}  // namespace walsh
