// What a model's files say of the embeddings of texts: which of the states that its layers give for
// the tokens of a text, behind the final norm, are taken, and whether the result has unit length.
// They are files of sentence-transformers (weights/sentence_files.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace walsh {

// What is read of a text instead of continuing it.
enum class Reading : uint8_t {
  none,
  logits,  // of its last token
  last,    // the state of its last token
  mean,    // the mean of all states
  cls      // the state of its first token
};

// Whether it is made of states.
inline bool is_pooling(Reading reading) {
  return reading == Reading::last || reading == Reading::mean || reading == Reading::cls;
}

Reading parse_pooling(std::string_view name);  // last, mean or cls; throws usage
std::string_view pooling_name(Reading pooling);

struct EmbeddingConfig {
  Reading pooling = Reading::last;
  bool normalize = true;
};

// Reads what embedding_json() of weights/open.h gives; the empty text stands for a decoder that
// says nothing. Throws bad_input naming `where`.
EmbeddingConfig read_embedding_config(std::string_view json, const std::string& where);

// Divides the values by their length, unless that is zero.
void to_unit_length(std::span<float> values);

}  // namespace walsh
