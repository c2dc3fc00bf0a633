#include "api/synthetic_model.h"

#include <algorithm>

#include "arch/config.h"
#include "codec/format.h"
#include "io/json.h"
#include "model/synthetic.h"
#include "text/byte_level.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr std::string_view kPrefix = "synthetic:";
constexpr int64_t kBytes = 256;

// Returns a word after a space, different for each number. The words are a, b, ..., z, aa, ba and
// so on.
std::string word(int64_t number) {
  std::string text = " ";
  for (++number; number > 0; number = (number - 1) / 26)
    text += static_cast<char>('a' + (number - 1) % 26);
  return text;
}

// Makes a byte-level BPE without merges: text that is not one of the words becomes bytes.
std::string tokenizer_of(int64_t vocab) {
  Json tokens = Json::object();
  for (int64_t id = 0; id < vocab; ++id) {
    std::string token;
    append_byte_level(id < kBytes ? std::string(1, static_cast<char>(id)) : word(id - kBytes),
                      token);
    tokens[token] = id;
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  return Json({{"version", "1.0"},
               {"added_tokens", Json::array()},
               {"normalizer", nullptr},
               {"pre_tokenizer", byte_level},
               {"post_processor", nullptr},
               {"decoder", byte_level},
               {"model",
                {{"type", "BPE"},
                 {"ignore_merges", true},
                 {"vocab", std::move(tokens)},
                 {"merges", Json::array()}}}})
      .dump();
}

class SyntheticModel : public SyntheticSource {
 public:
  SyntheticModel(std::string_view shape, const SyntheticTypes& types)
      : SyntheticSource(shape, types),
        tokenizer_(tokenizer_of(parse_config(config_json(), path()).vocab)) {}

  std::string_view tokenizer_json() const override { return tokenizer_; }

 private:
  const std::string tokenizer_;
};

}  // namespace

bool names_synthetic(std::string_view path) {
  return path.starts_with(kPrefix);
}

std::unique_ptr<WeightSource> open_synthetic(const std::string& path) {
  const std::string_view rest = std::string_view(path).substr(kPrefix.size());
  const size_t end = rest.find(':');
  if (end == rest.npos) throw Error(ErrorCode::usage, path, "expected synthetic:SHAPE:TYPE");
  const std::string_view types = rest.substr(end + 1);
  const size_t comma = types.find(',');
  const Format* type = &get_format(types.substr(0, comma));
  const Format* ends = comma == types.npos ? type : &get_format(types.substr(comma + 1));
  return std::make_unique<SyntheticModel>(
      rest.substr(0, end), SyntheticTypes{.type = type, .embed_type = ends, .head_type = ends});
}

}  // namespace walsh
