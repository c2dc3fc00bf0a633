// Holds what a model's files (io/sentence_files.h) say about the embeddings of texts: which of the
// states that its layers give for the tokens of a text, behind the final norm, are taken, and
// whether the result has unit length.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace walsh {

// A text is read instead of continued, and this is what its sink gets.
enum class Reading : uint8_t {
  none,
  logits,  // of its last token
  last,    // the state of its last token
  mean,    // the mean of all states
  cls      // the state of its first token
};

// Returns whether a reading is made of states.
inline bool is_pooling(Reading reading) {
  return reading == Reading::last || reading == Reading::mean || reading == Reading::cls;
}

Reading parse_pooling(std::string_view name);  // last, mean or cls; throws usage

struct EmbeddingConfig {
  Reading pooling = Reading::last;
  bool normalize = true;
};

// Reads what embedding_json() of weights/open.h returns; the empty text stands for a decoder that
// says nothing. Throws bad_input naming `where`.
EmbeddingConfig read_embedding_config(std::string_view json, const std::string& where);

// Divides the values by their length, unless that is zero.
void to_unit_length(std::span<float> values);

}  // namespace walsh
