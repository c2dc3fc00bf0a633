#include "text/declared_tokens.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/component.h"

namespace walsh {
namespace {

constexpr std::array<const char*, 7> kRoles = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};

// Reads a token to be added, which becomes an entry of "added_tokens" without an id. Returns null
// if there is none.
Json read_token(const OrderedJson& value, bool special, const std::string& where) {
  if (value.is_null() || value == "") return {};
  Json given = value.is_string() ? Json{{"content", value.get<std::string>()}} : Json(value);
  if (!given.is_object()) {
    throw Error(ErrorCode::bad_input, where, describe_json(given) + " where a token is expected");
  }
  given.erase("__type");
  check_keys(given, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"},
             where);
  const bool is_special =
      find_bool(given, "special", where).value_or(false) || special || value.is_string();
  Json entry = {{"content", get_string(given, "content", where)},
                {"special", is_special},
                {"normalized", find_bool(given, "normalized", where).value_or(!is_special)}};
  for (const char* flag : {"single_word", "lstrip", "rstrip"})
    entry[flag] = find_bool(given, flag, where).value_or(false);
  return entry["content"] == "" ? Json() : entry;
}

class Declarations {
 public:
  Declarations(const Json& own, const OrderedJson& config, const std::string& where)
      : entries_(own), config_(config), where_(where) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (!entries_[i].is_object()) continue;
      const auto content = entries_[i].find("content");
      if (content != entries_[i].end() && content->is_string())
        places_.emplace(content->get<std::string>(), i);
    }
    read_roles();
  }

  Json run() {
    if (const OrderedJson* decoder = find("added_tokens_decoder")) {
      add_decoder(*decoder);
    } else {
      for (Json& entry : entries_) {
        if (entry.is_object() && is_role(entry)) {
          entry["special"] = true;
        }
      }
    }
    for (const Json& token : named_)
      add_new(token);
    for (const Json& token : extra_)
      add_new(token);
    return std::move(entries_);
  }

 private:
  bool is_role(const Json& entry) const {
    const auto content = entry.find("content");
    return content != entry.end() && content->is_string() &&
           roles_.contains(content->get_ref<const std::string&>());
  }

  const OrderedJson* find(const char* key) const {
    const auto place = config_.find(key);
    return place == config_.end() || place->is_null() ? nullptr : &*place;
  }

  void read_named(const std::string& key, const OrderedJson& value) {
    Json token = read_token(value, true, where_ + "." + key);
    if (token.is_null()) return;
    roles_.insert(token["content"].get<std::string>());
    named_.push_back(std::move(token));
  }

  // Reads the usual roles first, then roles that only this model has.
  void read_roles() {
    for (const char* role : kRoles) {
      if (const OrderedJson* value = find(role)) read_named(role, *value);
    }
    for (const auto& [key, value] : config_.items()) {
      const bool usual = std::find(kRoles.begin(), kRoles.end(), key) != kRoles.end();
      if (!usual && key.ends_with("_token") && value.is_string()) read_named(key, value);
    }
    const OrderedJson* extra = find("extra_special_tokens");
    if (extra != nullptr && extra->is_object()) {
      for (const auto& [key, value] : extra->items())
        read_named("extra_special_tokens." + key, value);
      extra = nullptr;
    }
    const bool has_extra = extra != nullptr && !extra->empty();
    const char* key = has_extra ? "extra_special_tokens" : "additional_special_tokens";
    const OrderedJson* list = find(key);
    if (list == nullptr) return;
    const std::string where = where_ + "." + key;
    if (!list->is_array()) {
      throw Error(ErrorCode::bad_input, where,
                  describe_json(Json(*list)) + " where an array is expected");
    }
    for (const OrderedJson& value : *list) {
      if (Json token = read_token(value, false, where); !token.is_null()) extra_.push_back(token);
    }
  }

  // The keys are ids; they only determine the order of the tokens.
  void add_decoder(const OrderedJson& decoder) {
    const std::string where = where_ + ".added_tokens_decoder";
    if (!decoder.is_object()) {
      throw Error(ErrorCode::bad_input, where,
                  describe_json(Json(decoder)) + " where an object is expected");
    }
    std::map<uint32_t, Json> by_id;
    for (const auto& [key, value] : decoder.items()) {
      uint32_t id = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size()) {
        throw Error(ErrorCode::bad_input, where, describe_json(key) + " where an id is expected");
      }
      Json token = read_token(value, false, where + "." + key);
      if (token.is_null()) continue;
      if (is_role(token)) {
        const bool stated = value.is_object() && value.contains("normalized");
        token["special"] = true;
        token["normalized"] = stated && token["normalized"];
      }
      by_id[id] = std::move(token);
    }
    for (auto& [id, token] : by_id)
      put(std::move(token));
  }

  void add_new(const Json& token) {
    if (!places_.contains(token["content"].get<std::string>())) put(token);
  }

  void put(Json token) {
    const auto [place, inserted] =
        places_.emplace(token["content"].get<std::string>(), entries_.size());
    if (inserted) {
      if (entries_.is_null()) entries_ = Json::array();
      entries_.push_back(std::move(token));
      return;
    }
    Json& entry = entries_[place->second];
    if (entry.contains("id")) token["id"] = entry["id"];
    entry = std::move(token);
  }

  Json entries_;
  const OrderedJson& config_;
  const std::string& where_;
  std::unordered_map<std::string, size_t> places_;  // the tokens in entries_ have these places
  std::unordered_set<std::string> roles_;           // they are the texts of named_
  std::vector<Json> named_, extra_;
};

}  // namespace

Json with_declared_tokens(const Json& own, const OrderedJson& config, const std::string& where) {
  if (!own.is_null() && !own.is_array()) return own;
  return Declarations(own, config, where).run();
}

}  // namespace walsh
