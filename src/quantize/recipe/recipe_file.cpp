#include "quantize/recipe/recipe_file.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>

namespace walsh {
namespace {

constexpr size_t kMaxRules = 100'000;
constexpr size_t kMaxPattern = 1000;  // it counts characters
constexpr const char* kSource = "source";

// Replaces errors of the parsers of single values, which name flags of the command, by errors that
// name the key.
template <typename Read>
auto in_recipe(const std::string& where, Read&& read) {
  try {
    return read();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::usage) throw;
    throw Error(ErrorCode::bad_input, where, e.reason());
  }
}

void refuse_unknown_keys(const Json& object, std::span<const std::string_view> known,
                         const std::string& where) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw Error(ErrorCode::bad_input, where, "unknown key '" + key + "'");
  }
}

// Returns the format of that name, or null for "source". Sets `note` to what a user should know
// about the name.
const Format* parse_format(const std::string& name, const std::string& where, std::string& note) {
  if (name == kSource) return nullptr;
  note = about_name(name);
  return in_recipe(where, [&] { return &get_format(name); });
}

TensorRule parse_rule(const Json& json, const std::string& where) {
  constexpr std::array<std::string_view, 2> kKeys = {"tensor", "type"};
  if (!json.is_object()) {
    throw Error(ErrorCode::bad_input, where,
                "found " + describe_json(json) + ", expected an object with 'tensor' and 'type'");
  }
  refuse_unknown_keys(json, kKeys, where);
  const std::string pattern = get_string(json, "tensor", where);
  if (pattern.size() > kMaxPattern) {
    throw Error(ErrorCode::bad_input, where,
                "the pattern has " + std::to_string(pattern.size()) +
                    " characters, expected at most " + std::to_string(kMaxPattern));
  }
  TensorRule rule = in_recipe(where, [&] { return parse_ignore(pattern); });
  rule.format = parse_format(get_string(json, "type", where), where, rule.note);
  return rule;
}

std::vector<TensorRule> parse_rules(const Json& recipe, const std::string& where) {
  std::vector<TensorRule> rules;
  const Json* list = find_array(recipe, "rules", where);
  if (list == nullptr) return rules;
  if (list->size() > kMaxRules) {
    throw Error(
        ErrorCode::bad_input, where,
        std::to_string(list->size()) + " rules, expected at most " + std::to_string(kMaxRules));
  }
  std::set<std::string> patterns;
  for (const Json& item : *list) {
    const std::string place = where + ": rules[" + std::to_string(rules.size()) + "]";
    rules.push_back(parse_rule(item, place));
    if (!patterns.insert(rules.back().pattern).second) {
      throw Error(ErrorCode::bad_input, place, "'" + rules.back().pattern + "' is there twice");
    }
  }
  return rules;
}

// Reads one of two words as a flag, which is true for `yes`.
bool find_word(const Json& json, const char* key, const std::string& where, const char* yes,
               const char* no, bool otherwise) {
  const auto word = find_string(json, key, where);
  if (!word) return otherwise;
  if (*word == yes) return true;
  if (*word == no) return false;
  throw Error(ErrorCode::bad_input, where,
              std::string("'") + key + "' is '" + *word + "', expected " + yes + " or " + no);
}

void check_version(const Json& json, const std::string& where) {
  if (!json.is_object()) {
    throw Error(ErrorCode::bad_input, where,
                "found " + describe_json(json) + ", expected an object with 'walsh_recipe'");
  }
  const int64_t version = get_int(json, "walsh_recipe", where, 1);
  if (version == kRecipeVersion) return;
  throw Error(ErrorCode::bad_input, where,
              "recipe of version " + std::to_string(version) + ", this walsh reads version " +
                  std::to_string(kRecipeVersion));
}

}  // namespace

Recipe parse_recipe(std::string_view text, std::string_view place) {
  constexpr std::array<std::string_view, 14> kKeys = {
      "walsh_recipe", "about", "type",  "embed_type", "head_type", "rules",  "rotation",
      "rotate",       "block", "signs", "balance",    "seed",      "effort", "scale"};
  const std::string where(place);
  if (text.size() > kMaxRecipeBytes) {
    throw Error(ErrorCode::bad_input, where,
                "a recipe of " + std::to_string(text.size()) + " bytes, expected at most " +
                    std::to_string(kMaxRecipeBytes));
  }
  const Json json = parse_json(text, where);
  check_version(json, where);
  refuse_unknown_keys(json, kKeys, where);
  Recipe recipe;
  const auto named = [&](const std::string& name) {
    return parse_format(name, where, recipe.notes.emplace_back());
  };
  recipe.type = named(get_string(json, "type", where));
  if (recipe.type == nullptr) {
    throw Error(ErrorCode::bad_input, where, "'type' is 'source', expected a format");
  }
  const auto kept = [&](const char* key) {
    return named(find_string(json, key, where).value_or(kSource));
  };
  recipe.embed_type = kept("embed_type");
  recipe.head_type = kept("head_type");
  recipe.rules = parse_rules(json, where);
  return in_recipe(where, [&] {
    recipe.rotation =
        parse_rotation_kind(find_string(json, "rotation", where).value_or("hadamard"));
    recipe.rotate = parse_rotate_at(find_string(json, "rotate", where).value_or("input"));
    recipe.block = static_cast<int>(find_int(json, "block", where, 0, 1 << 20).value_or(0));
    recipe.signs = find_bool(json, "signs", where).value_or(true);
    recipe.seed = static_cast<uint32_t>(find_int(json, "seed", where, 0, UINT32_MAX).value_or(42));
    recipe.balance = find_bool(json, "balance", where).value_or(true);
    recipe.encode.effort =
        find_word(json, "effort", where, "full", "fast", true) ? Effort::full : Effort::fast;
    recipe.encode.scale_rule = find_word(json, "scale", where, "search", "shape-gain", true)
                                   ? ScaleRule::search
                                   : ScaleRule::shape_gain;
    check_recipe(recipe);
    return recipe;
  });
}

std::string format_recipe(const Recipe& recipe, const Json& about) {
  Json json = Json::parse(recipe_json(recipe));
  json.erase("calibration");  // it belongs to one run, not to the choice of formats
  json["walsh_recipe"] = kRecipeVersion;
  if (!about.is_null()) json["about"] = about;
  return json.dump(1) + "\n";
}

}  // namespace walsh
