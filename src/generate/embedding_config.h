// Holds what a model's files (io/sentence_files.h) say about the embeddings of texts. Its layers
// give a state for each token, after the final norm: the files say which of them are taken, and
// whether the result has unit length.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace walsh {

// A text may be read instead of being continued. The reading says what its sink gets.
enum class Reading : uint8_t {
  none,
  logits,  // it gets the logits of the last token
  last,    // it gets the state of the last token
  mean,    // it gets the mean of all states
  cls      // the state of its first token
};

// Returns whether a reading is made of states.
inline bool is_pooling(Reading reading) {
  return reading == Reading::last || reading == Reading::mean || reading == Reading::cls;
}

// The name is last, mean or cls; throws usage for others.
Reading parse_pooling(std::string_view name);

struct EmbeddingConfig {
  Reading pooling = Reading::last;
  bool normalize = true;
};

// Reads the text of embedding_json() (weights/open.h). The empty text stands for a decoder that
// says nothing. Throws bad_input naming `where`.
EmbeddingConfig read_embedding_config(std::string_view json, const std::string& where);

// Divides the values by their length, unless that is zero.
void to_unit_length(std::span<float> values);

}  // namespace walsh
