#include "io/legacy_tokens.h"

#include <unordered_set>

#include "io/json.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr const char* kDecoder = "added_tokens_decoder";
constexpr const char* kExtra = "extra_special_tokens";
constexpr const char* kAdditional = "additional_special_tokens";

OrderedJson parse_object(const std::string& text, const std::string& where) {
  if (text.empty()) return OrderedJson::object();
  OrderedJson json = parse_ordered_json(text, where);
  if (!json.is_object()) throw Error(ErrorCode::bad_input, where, "an object is expected");
  return json;
}

bool is_full_list(const OrderedJson& config, const char* key) {
  const auto place = config.find(key);
  return place != config.end() && place->is_array() && !place->empty();
}

// The file replaces entries of the configuration, but its list of further tokens is appended.
void add_special_tokens(const OrderedJson& map, OrderedJson& config) {
  const bool has_list = is_full_list(config, kExtra) || is_full_list(config, kAdditional);
  for (const auto& [key, value] : map.items()) {
    OrderedJson tokens = value.is_array() ? value : OrderedJson::array({value});
    for (OrderedJson& token : tokens) {
      if (token.is_object()) token["special"] = true;
    }
    if (key == kExtra && value.is_array() && is_full_list(config, kExtra)) {
      for (const OrderedJson& token : tokens)
        config[key].push_back(token);
    } else if (key == kExtra && value.is_object()) {
      config[key] = value;
    } else if (key != kAdditional || !has_list) {
      config[key] = value.is_array() ? tokens : tokens[0];
    }
  }
}

// Returns the texts of tokens that have a role (bos_token and so on).
std::unordered_set<std::string> special_texts(const OrderedJson& config) {
  std::unordered_set<std::string> texts;
  const auto add = [&texts](const OrderedJson& token) {
    if (token.is_string()) texts.insert(token.get<std::string>());
    if (!token.is_object()) return;
    const auto content = token.find("content");
    if (content != token.end() && content->is_string()) texts.insert(content->get<std::string>());
  };
  for (const auto& [key, value] : config.items()) {
    if (key.ends_with("_token")) add(value);
    if (key != kExtra && key != kAdditional) continue;
    for (const OrderedJson& token : value)
      add(token);
  }
  return texts;
}

// Returns the tokens by id, which are those of added_tokens.json, overridden by those of
// tokenizer.json.
OrderedJson decoder_of(const OrderedJson& added, const OrderedJson& tokenizer,
                       const std::unordered_set<std::string>& special, const std::string& where) {
  OrderedJson decoder = OrderedJson::object();
  for (const auto& [text, id] : added.items()) {
    if (!id.is_number_unsigned())
      throw Error(ErrorCode::bad_input, where, "an id is no number from 0 on");
    const bool is_special = special.contains(text);
    decoder[id.dump()] = {{"content", text}, {"normalized", !is_special}, {"special", is_special}};
  }
  const auto own = tokenizer.find("added_tokens");
  if (own == tokenizer.end() || !own->is_array()) return decoder;
  for (const OrderedJson& token : *own) {
    if (token.is_object() && token.contains("id")) decoder[token["id"].dump()] = token;
  }
  return decoder;
}

}  // namespace

std::string with_legacy_tokens(const std::string& config, const std::string& tokenizer,
                               const LegacyTokenFiles& files, const std::string& folder) {
  if (files.special_tokens_map.empty() && files.added_tokens.empty()) return config;
  OrderedJson json = parse_object(config, folder + ": tokenizer_config.json");
  if (json.contains(kDecoder)) return config;
  add_special_tokens(parse_object(files.special_tokens_map, folder + ": special_tokens_map.json"),
                     json);
  if (!files.added_tokens.empty()) {
    const std::string where = folder + ": added_tokens.json";
    json[kDecoder] = decoder_of(parse_object(files.added_tokens, where),
                                parse_object(tokenizer, folder + ": tokenizer.json"),
                                special_texts(json), where);
  }
  return json.dump();
}

}  // namespace walsh
