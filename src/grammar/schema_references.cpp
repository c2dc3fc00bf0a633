#include "grammar/schema_references.h"

#include <fmt/format.h>

#include <array>
#include <deque>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "base/percent.h"

namespace walsh::grammar {
namespace {

// The value of these keywords is a schema, a list of schemas or an object of schemas.
constexpr std::array kSchemas = {"additionalItems",
                                 "additionalProperties",
                                 "contains",
                                 "contentSchema",
                                 "else",
                                 "if",
                                 "items",
                                 "not",
                                 "propertyNames",
                                 "then",
                                 "unevaluatedItems",
                                 "unevaluatedProperties",
                                 "allOf",
                                 "anyOf",
                                 "oneOf",
                                 "prefixItems"};
constexpr std::array kMaps = {
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"};

struct Uri {
  std::string scheme, authority, path;  // scheme includes ":", authority includes "//"

  explicit Uri(std::string_view text) {
    text = text.substr(0, text.find('#'));
    const size_t colon = text.find(':');
    if (colon != text.npos && colon < text.find('/')) {
      scheme = text.substr(0, colon + 1);
      text.remove_prefix(colon + 1);
    }
    if (text.starts_with("//")) {
      authority = text.substr(0, text.find('/', 2));
      text.remove_prefix(authority.size());
    }
    path = text;
  }
  std::string text() const { return scheme + authority + path; }
};

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> parts;
  const bool rooted = path.starts_with('/');
  for (size_t at = rooted ? 1 : 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (part != ".") {
      parts.push_back(part);
    }
    at = end + 1;
  }
  std::string result(rooted ? "/" : "");
  for (size_t i = 0; i < parts.size(); ++i)
    result.append(i > 0 ? "/" : "").append(parts[i]);
  return result;
}

// Returns the address of a reference relative to `base` (RFC 3986, 5.2), without a fragment.
std::string resolved(const std::string& base, std::string_view reference) {
  const Uri from(base);
  Uri to(reference);
  if (!to.scheme.empty()) return to.text();
  to.scheme = from.scheme;
  if (!to.authority.empty()) return to.text();
  to.authority = from.authority;
  if (to.path.empty()) {
    to.path = from.path;
  } else if (!to.path.starts_with('/')) {
    const size_t folder = from.path.rfind('/');
    to.path = (folder == from.path.npos ? "" : from.path.substr(0, folder + 1)) + to.path;
  }
  to.path = without_dots(to.path);
  return to.text();
}

class Resolver {
 public:
  Resolver(OrderedJson& root, const std::string& where, StepBudget& budget)
      : root_(root), where_(where), budget_(budget), old_(ignores_beside_ref(root)) {}

  void run() {
    walk(root_, "", "");
    for (; !references_.empty(); references_.pop_front())
      rewrite(references_.front());
  }

 private:
  struct Reference {
    OrderedJson* schema;
    std::string keyword, base;
  };

  void walk(OrderedJson& schema, const std::string& pointer, std::string base) {
    budget_.spend(2 + pointer.size() / 16, where_);
    if (!schema.is_object() || !visited_.insert(pointer).second) return;
    name(schema, pointer, base);
    for (const char* keyword : {"$ref", "$dynamicRef", "$recursiveRef"})
      if (schema.contains(keyword) && schema[keyword].is_string())
        references_.push_back({&schema, keyword, base});
    for (const char* keyword : kSchemas) {
      const auto value = schema.find(keyword);
      if (value == schema.end()) continue;
      const std::string place = longer_pointer(pointer, keyword);
      if (value->is_array()) {
        for (size_t i = 0; i < value->size(); ++i)
          walk((*value)[i], longer_pointer(place, std::to_string(i)), base);
      } else {
        walk(*value, place, base);
      }
    }
    for (const char* keyword : kMaps) {
      const auto value = schema.find(keyword);
      if (value == schema.end() || !value->is_object()) continue;
      const std::string place = longer_pointer(pointer, keyword);
      for (auto& [key, one] : value->get_ref<OrderedJson::object_t&>())
        walk(one, longer_pointer(place, key), base);
    }
  }

  // Records the addresses and anchors of a schema. `base` becomes the base of its subschemas.
  void name(const OrderedJson& schema, const std::string& pointer, std::string& base) {
    const auto text_of = [&](const char* key) {
      const auto value = schema.find(key);
      return value != schema.end() && value->is_string() ? value->get<std::string>() : "";
    };
    std::string id = text_of("$id");
    if (id.empty() && old_) id = text_of("id");
    if (old_ && schema.contains("$ref")) id.clear();
    const bool anchor = id.starts_with('#');  // older drafts spell anchors like this
    if (!id.empty() && !anchor) base = resolved(base, id);
    if (pointer.empty() || (!id.empty() && !anchor)) places_.try_emplace(base, pointer);
    if (anchor && id.size() > 1) places_.try_emplace(base + id, pointer);
    for (const char* key : {"$anchor", "$dynamicAnchor"})
      if (const std::string text = text_of(key); !text.empty())
        places_.try_emplace(base + "#" + text, pointer);
    if (const std::string text = text_of("$dynamicAnchor"); !text.empty()) ++dynamic_[text];
    if (schema.contains("$recursiveAnchor") && schema["$recursiveAnchor"] == true) ++recursive_;
  }

  void rewrite(const Reference& reference) {
    OrderedJson& value = (*reference.schema)[reference.keyword];
    const auto text = value.get<std::string>();
    const size_t mark = std::min(text.find('#'), text.size());
    const std::string fragment =
        mark < text.size() ? percent_decoded(std::string_view(text).substr(mark + 1)) : "";
    const std::string base = resolved(reference.base, text);
    const bool pointer = fragment.empty() || fragment.starts_with('/');
    const auto place = places_.find(pointer ? base : base + "#" + fragment);
    // A dynamic reference depends on the path of evaluation, so it is resolved only if there is one
    // candidate.
    const bool dynamic = reference.keyword == "$dynamicRef" && !pointer &&
                         dynamic_.contains(fragment) && dynamic_[fragment] > 1;
    const bool recursive = reference.keyword == "$recursiveRef" && recursive_ > 0 &&
                           (recursive_ > 1 || places_.size() > 1);
    if (place == places_.end() || dynamic || recursive) {
      if (text.starts_with('#')) value = "?" + text;
      return;
    }
    const std::string target = place->second + (pointer ? fragment : "");
    std::string written = "#";
    for (const char c : target)
      written +=
          c == '%' || c < ' ' ? fmt::format("%{:02X}", static_cast<uint8_t>(c)) : std::string(1, c);
    value = written;
    if (visited_.contains(target)) return;
    // No keyword has led to this place.
    try {
      walk(root_.at(OrderedJson::json_pointer(target)), target, base);
      // There is no such place, which the reader of the schema reports.
    } catch (const OrderedJson::exception&) {
    }
  }

  OrderedJson& root_;
  const std::string& where_;
  StepBudget& budget_;
  const bool old_;
  std::set<std::string> visited_;  // it has the pointers of visited schemas
  // The pointers are found by address, with or without an anchor.
  std::map<std::string, std::string> places_;
  std::map<std::string, int> dynamic_;  // this many schemas have this $dynamicAnchor
  int recursive_ = 0;
  std::deque<Reference> references_;
};

}  // namespace

bool ignores_beside_ref(const OrderedJson& root) {
  if (!root.is_object() || !root.contains("$schema") || !root["$schema"].is_string()) return false;
  const auto& name = root["$schema"].get_ref<const std::string&>();
  for (const char* draft : {"draft-03", "draft-04", "draft-06", "draft-07"})
    if (name.find(draft) != name.npos) return true;
  return false;
}

std::string longer_pointer(const std::string& pointer, std::string_view name) {
  std::string result = pointer + "/";
  for (const char c : name)
    result += c == '~' ? std::string("~0") : c == '/' ? std::string("~1") : std::string(1, c);
  return result;
}

OrderedJson with_pointers(const OrderedJson& root, const std::string& where, StepBudget& budget) {
  OrderedJson result = root;
  Resolver(result, where, budget).run();
  return result;
}

}  // namespace walsh::grammar
