#include "text/decode_stages.h"

#include <algorithm>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace walsh::detail {
namespace {

// One token has at most this size after one replacement.
constexpr size_t kMaxReplacedBytes = size_t{1} << 26;
// A replacement pattern may take this many steps on one token, because tokens are many and short.
constexpr uint64_t kTokenSteps = 200'000, kStepsPerByte = 200;

// Stages that need a whole token at once derive from this one.
class TokenStage : public DecodeStage {
 public:
  void text(std::string_view piece) final { token_.append(piece); }
  void end() final {
    token(token_);
    token_.clear();
  }

 protected:
  virtual void token(const std::string& whole) = 0;

 private:
  std::string token_;
};

// Decodes byte-level tokens. They are joined, so the one token that results ends only with the
// stream.
class ByteLevelStage final : public TokenStage {
 public:
  void token(const std::string& whole) override {
    std::string text;
    assembler_.feed(byte_level_to_bytes(whole).value_or(whole), text);
    next_->text(text);
  }
  void finish() override {
    std::string text;
    assembler_.finish(text);
    next_->text(text);
    next_->end();
    next_->finish();
  }

 private:
  Utf8Assembler assembler_;
};

// Returns the value of a hexadecimal digit, or -1 if `c` is none.
int hex_value(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Collects the bytes of the current run; any other token ends the run.
class ByteFallbackStage final : public TokenStage {
 public:
  void token(const std::string& whole) override {
    if (const auto byte = byte_of_token(whole)) {
      bytes_.push_back(static_cast<char>(*byte));
      return;
    }
    flush();
    pass(whole);
  }
  void finish() override {
    flush();
    next_->finish();
  }

 private:
  void pass(std::string_view whole) {
    next_->text(whole);
    next_->end();
  }

  void flush() {
    if (bytes_.empty()) {
      return;
    }
    if (is_valid_utf8(bytes_)) {
      pass(bytes_);
    } else {
      for (size_t i = 0; i < bytes_.size(); ++i) {
        pass(kReplacementUtf8);
      }
    }
    bytes_.clear();
  }

  std::string bytes_;
};

class FuseStage final : public DecodeStage {
 public:
  void text(std::string_view piece) override { next_->text(piece); }
  void end() override {}
  void finish() override {
    next_->end();
    next_->finish();
  }
};

class ReplaceStage final : public TokenStage {
 public:
  ReplaceStage(const Pattern& pattern, std::string content)
      : pattern_(pattern), content_(std::move(content)) {}

  void token(const std::string& whole) override {
    const size_t max_size = std::min(max_replaced_size(whole.size()), kMaxReplacedBytes);
    StepBudget steps(kTokenSteps + kStepsPerByte * whole.size());
    next_->text(pattern_.replace_all(whole, content_, std::max(max_size, whole.size()), steps));
    next_->end();
  }
  void finish() override { next_->finish(); }

 private:
  Pattern pattern_;
  std::string content_;
};

// Strips a character. It counts the characters that it holds back instead of storing them, since
// all are the same.
class StripStage final : public DecodeStage {
 public:
  StripStage(char32_t character, size_t start, size_t stop) : start_(start), stop_(stop) {
    append_utf8(character, character_);
  }

  void text(std::string_view piece) override {
    while (!piece.empty()) {
      const std::string_view character = piece.substr(0, decode_utf8(piece).size);
      piece.remove_prefix(character.size());
      put(character);
    }
  }
  void end() override {
    leading_ = 0;
    at_start_ = true;
    held_ = 0;
    next_->end();
  }
  void finish() override { next_->finish(); }

 private:
  void put(std::string_view character) {
    const bool stripped = character == character_;
    if (at_start_ && stripped && leading_ < start_) {
      ++leading_;
      return;
    }
    at_start_ = false;
    if (stripped && held_ < stop_) {
      ++held_;
      return;
    }
    if (stripped) {
      next_->text(character_);  // the oldest held character can no longer be among the last ones
      return;
    }
    for (; held_ > 0; --held_) {
      next_->text(character_);
    }
    next_->text(character);
  }

  std::string character_;
  size_t start_, stop_;
  size_t leading_ = 0;  // this many characters were removed at the start of this token
  size_t held_ = 0;     // this many trailing characters may have to be removed
  bool at_start_ = true;
};

class MetaspaceStage final : public DecodeStage {
 public:
  explicit MetaspaceStage(Metaspace settings) : settings_(std::move(settings)) {}

  void text(std::string_view piece) override {
    const std::string& mark = settings_.replacement;
    const bool drop = first_ && settings_.scheme != PrependScheme::never;
    std::string out;
    for (size_t at = piece.find(mark); at != piece.npos; at = piece.find(mark)) {
      out.append(piece.substr(0, at)).append(drop ? "" : " ");
      piece.remove_prefix(at + mark.size());
    }
    next_->text(out.append(piece));
  }
  void end() override {
    first_ = false;
    next_->end();
  }
  void finish() override { next_->finish(); }

 private:
  Metaspace settings_;
  bool first_ = true;
};

// Puts a space in front of every token but the first, also of an empty one.
class JoinStage final : public DecodeStage {
 public:
  void text(std::string_view piece) override {
    separate();
    next_->text(piece);
  }
  void end() override {
    separate();
    open_ = false;
    first_ = false;
    next_->end();
  }
  void finish() override { next_->finish(); }

 private:
  void separate() {
    if (!open_ && !first_) {
      next_->text(" ");
    }
    open_ = true;
  }

  bool first_ = true, open_ = false;
};

}  // namespace

std::optional<uint8_t> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = hex_value(token[3]), low = hex_value(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

std::unique_ptr<DecodeStage> byte_level_stage() {
  return std::make_unique<ByteLevelStage>();
}
std::unique_ptr<DecodeStage> byte_fallback_stage() {
  return std::make_unique<ByteFallbackStage>();
}
std::unique_ptr<DecodeStage> fuse_stage() {
  return std::make_unique<FuseStage>();
}

std::unique_ptr<DecodeStage> replace_stage(const Pattern& pattern, std::string content) {
  return std::make_unique<ReplaceStage>(pattern, std::move(content));
}

std::unique_ptr<DecodeStage> strip_stage(char32_t character, size_t start, size_t stop) {
  return std::make_unique<StripStage>(character, start, stop);
}

std::unique_ptr<DecodeStage> metaspace_stage(Metaspace settings) {
  return std::make_unique<MetaspaceStage>(std::move(settings));
}

std::unique_ptr<DecodeStage> join_stage() {
  return std::make_unique<JoinStage>();
}

}  // namespace walsh::detail
