// Decodes tokens to text by tokenizer.json's "decoder", which is a chain of stages that work on a
// stream.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"

namespace walsh {

// A stage receives tokens piece by piece and hands tokens on. Every piece is valid UTF-8 made of
// whole characters.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void text(std::string_view piece) = 0;  // it takes a piece of the current token
  virtual void end() = 0;                         // the current token is complete
  virtual void finish() = 0;                      // there are no more tokens

  void link(DecodeStage* next) { next_ = next; }

 protected:
  DecodeStage* next_ = nullptr;
};

// A stream is one decoding in progress. The stages hold text back only while later tokens can
// change it.
class DecodeStream {
 public:
  DecodeStream(DecodeStream&&) noexcept;
  DecodeStream& operator=(DecodeStream&&) noexcept;
  ~DecodeStream();

  // Adds a token and returns the text that is final now.
  std::string push(std::string_view token);
  // Ends the stream and returns the rest of the text.
  std::string finish();

 private:
  friend class Decoder;
  explicit DecodeStream(std::vector<std::unique_ptr<DecodeStage>> stages);

  std::vector<std::unique_ptr<DecodeStage>> stages_;
  std::unique_ptr<std::string> out_;
};

// Supports ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace and sequences of them. Const
// use is thread-safe.
class Decoder {
 public:
  // If `value` is null, tokens are joined with spaces. Throws bad_input for anything else.
  Decoder(const Json& value, std::string_view where);

  DecodeStream start() const;

  // Returns the bytes, which need not be UTF-8, that each of some tokens adds when it follows other
  // tokens.
  std::vector<std::string> bytes_of(const std::vector<std::string>& tokens) const;

 private:
  std::vector<std::function<std::unique_ptr<DecodeStage>()>> makers_;
  bool byte_level_ = false, byte_fallback_ = false;
};

}  // namespace walsh
