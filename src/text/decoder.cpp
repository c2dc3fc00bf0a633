#include "text/decoder.h"

#include <algorithm>

#include "text/byte_level.h"
#include "text/component.h"
#include "text/decode_stages.h"

namespace walsh {
namespace {

using detail::byte_of_token;
using Maker = std::function<std::unique_ptr<DecodeStage>()>;

// Collects the text at the end of the chain.
class CollectStage final : public DecodeStage {
 public:
  explicit CollectStage(std::string* out) : out_(out) {}
  void text(std::string_view piece) override { out_->append(piece); }
  void end() override {}
  void finish() override {}

 private:
  std::string* out_;
};

Maker read_replace(const Json& step, std::string_view where) {
  check_keys(step, {"pattern", "content"}, where);
  return [pattern = read_pattern(step, "pattern", where),
          content = get_string(step, "content", where)] {
    return detail::replace_stage(pattern, content);
  };
}

Maker read_strip(const Json& step, std::string_view where) {
  constexpr int64_t kMaxCount = 1 << 20;
  check_keys(step, {"content", "start", "stop"}, where);
  const char32_t character = get_character(step, "content", where);
  const auto start = static_cast<size_t>(get_int(step, "start", where, 0, kMaxCount));
  const auto stop = static_cast<size_t>(get_int(step, "stop", where, 0, kMaxCount));
  return [=] { return detail::strip_stage(character, start, stop); };
}

// Returns a function that makes new stages, because a stage has state.
Maker read_step(const Json& step, std::string_view where) {
  const std::string type = get_string(step, "type", where);
  if (type == "Replace") {
    return read_replace(step, where);
  }
  if (type == "Strip") {
    return read_strip(step, where);
  }
  if (type == "Metaspace") {
    return [settings = read_metaspace(step, where)] { return detail::metaspace_stage(settings); };
  }
  if (type == "ByteLevel") {
    check_keys(step, {"add_prefix_space", "trim_offsets", "use_regex"}, where);
    return detail::byte_level_stage;
  }
  check_keys(step, {}, where);
  if (type == "ByteFallback") {
    return detail::byte_fallback_stage;
  }
  if (type == "Fuse") {
    return detail::fuse_stage;
  }
  refuse_component("decoder", type, where);
}

}  // namespace

DecodeStream::DecodeStream(std::vector<std::unique_ptr<DecodeStage>> stages)
    : stages_(std::move(stages)), out_(std::make_unique<std::string>()) {
  stages_.push_back(std::make_unique<CollectStage>(out_.get()));
  for (size_t i = 0; i + 1 < stages_.size(); ++i) {
    stages_[i]->link(stages_[i + 1].get());
  }
}

DecodeStream::DecodeStream(DecodeStream&&) noexcept = default;
DecodeStream& DecodeStream::operator=(DecodeStream&&) noexcept = default;
DecodeStream::~DecodeStream() = default;

std::string DecodeStream::push(std::string_view token) {
  stages_.front()->text(token);
  stages_.front()->end();
  return std::exchange(*out_, {});
}

std::string DecodeStream::finish() {
  stages_.front()->finish();
  return std::exchange(*out_, {});
}

Decoder::Decoder(const Json& value, std::string_view where) {
  for (const Json* step : flatten_sequence(value, "decoders", where)) {
    makers_.push_back(read_step(*step, where));
    const std::string type = get_string(*step, "type", where);
    byte_level_ |= type == "ByteLevel";
    byte_fallback_ |= type == "ByteFallback";
  }
  if (value.is_null()) {
    makers_.push_back(detail::join_stage);
  }
}

DecodeStream Decoder::start() const {
  std::vector<std::unique_ptr<DecodeStage>> stages;
  stages.reserve(makers_.size() + 1);
  for (const Maker& make : makers_) {
    stages.push_back(make());
  }
  return DecodeStream(std::move(stages));
}

// Returns the bytes that tokens add. Tokens that are bytes without being characters are taken as
// they are; others are decoded between two ordinary tokens.
std::vector<std::string> Decoder::bytes_of(const std::vector<std::string>& tokens) const {
  const std::string anchor = "a";
  std::vector<std::string> result;
  result.reserve(tokens.size());
  DecodeStream stream = start();
  stream.push(anchor);
  const std::string behind = stream.push(anchor);
  for (const std::string& token : tokens) {
    const std::optional<uint8_t> byte = byte_fallback_ ? byte_of_token(token) : std::nullopt;
    if (byte_level_) {
      result.push_back(byte_level_to_bytes(token).value_or(token));
    } else if (byte) {
      result.emplace_back(1, static_cast<char>(*byte));
    } else {
      std::string text = stream.push(token);
      text += stream.push(anchor);
      text.resize(text.size() - std::min(text.size(), behind.size()));
      result.push_back(std::move(text));
    }
  }
  return result;
}

}  // namespace walsh
