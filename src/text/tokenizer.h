// Turns text into token ids and back, as the Hugging Face `tokenizers` library does it for
// tokenizer.json.
//
// Ids and texts equal those of the library, with two exceptions. Its Unicode tables differ from
// those of PCRE2 and utf8proc; unicode_table.h corrects this except for unassigned characters
// (\p{C}, \p{Cn}) and negated sets inside a class ([\P{L}]). A byte token <0xNN> has exactly two
// hexadecimal digits here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace walsh {

class StreamDecoder;

// Tokenizer::encode accepts texts of at most this length.
inline constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;

// A tokenizer can be moved; const use is thread-safe.
class Tokenizer {
 public:
  // Reads the text of a tokenizer.json, and of a tokenizer_config.json, which may be empty. From
  // the latter it takes the declared tokens (declared_tokens.h), bos_token and eos_token among
  // them, split_special_tokens, and add_bos_token and add_eos_token. Where these two flags are
  // given for a tokenizer class of the Llama line, they replace the post-processor, as in
  // transformers 4, which wrote them. (Transformers 5 omits and ignores them.) Without them the
  // post-processor is used, as in transformers 5. For other classes they stand in for a missing
  // post-processor, which neither version does: files made from a GGUF rely on it.
  // clean_up_tokenization_spaces is not applied when decoding. "truncation" and "padding" are
  // defaults for batches and are ignored. `where` names the file in errors. Throws bad_input for
  // anything malformed, and for every component, option or key whose effect is not implemented,
  // naming it.
  static Tokenizer from_json(std::string_view tokenizer_json,
                             std::string_view tokenizer_config_json, std::string_view where);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Returns the ids of a text. Each maximal ill-formed subsequence of the input counts as U+FFFD.
  // With `add_special` the post-processor's tokens (usually BOS) are added; special tokens written
  // in the text are recognized in either case. Throws limit for a text over 1 GiB and where the
  // tokenizer's patterns take more steps in all than StepBudget::for_text allows.
  std::vector<int32_t> encode(std::string_view utf8, bool add_special) const;

  // Returns the text of ids, which is valid UTF-8. Unknown ids are skipped, special ones with
  // `skip_special`.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  // Returns the largest id + 1: every id that encode() returns is smaller. It is not the number of
  // tokens if the vocabulary has holes, and often less than the rows of a model's embedding.
  int32_t vocab_size() const;
  // Looks up exactly this text in the vocabulary and the added tokens, without normalization.
  std::optional<int32_t> token_id(std::string_view token) const;
  // Returns the token as the vocabulary writes it, or nothing for an unknown id.
  std::optional<std::string> token(int32_t id) const;
  // Returns for each id the bytes that the token adds when it follows others. They are empty for
  // ids without a token.
  std::vector<std::string> token_bytes() const;
  // Returns whether "added_tokens" marks the id as special. It returns false for an unknown id.
  bool is_special(int32_t id) const;

  // These return the tokens that tokenizer_config.json names. If it names none, BOS is the token
  // that the post-processor puts first.
  std::optional<int32_t> bos() const;
  std::optional<int32_t> eos() const;
  // Returns BOS if encode() with `add_special` puts it in front of a text, and otherwise nothing.
  std::optional<int32_t> added_bos() const;

 private:
  friend class StreamDecoder;
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

// Decodes ids one at a time. Every string returned is complete UTF-8, and together they are what
// Tokenizer::decode gives for the whole sequence. The tokenizer must outlive the decoder.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special);
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;
  ~StreamDecoder();

  // Returns the text that this id completes. It is empty while a character, or a run of <0xNN>
  // tokens, is open.
  std::string push(int32_t id);
  // Returns the rest, in which an unfinished character becomes U+FFFD. Afterwards the decoder is as
  // new.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace walsh
