#include "serve/known_fields.h"

#include <map>
#include <set>

#include "io/json.h"
#include "serve/openapi.h"

namespace walsh {
namespace {

using Names = std::set<std::string, std::less<>>;

// Collects the names in a schema composed of others (allOf, $ref).
void add_names(const Json& document, const Json& schema, Names& names) {
  if (const auto other = schema.find("$ref"); other != schema.end())
    return add_names(document, document.at(Json::json_pointer(other->get<std::string>().substr(1))),
                     names);
  if (const auto own = schema.find("properties"); own != schema.end())
    for (const auto& [name, ignored] : own->items())
      names.insert(name);
  if (const auto parts = schema.find("allOf"); parts != schema.end())
    for (const Json& part : *parts)
      add_names(document, part, names);
}

std::map<std::string, Names> names_of_all_paths() {
  const Json document = parse_json(openapi_text(0), "openapi.json");
  std::map<std::string, Names> all;
  for (const auto& [path, methods] : document.at("paths").items()) {
    if (!methods.contains("post")) continue;
    const Json& body = methods["post"].at("requestBody").at("content").at("application/json");
    add_names(document, body.at("schema"), all[path]);
  }
  return all;
}

}  // namespace

bool is_known_field(const std::string& path, std::string_view name) {
  static const std::map<std::string, Names> all = names_of_all_paths();
  const auto known = all.find(path);
  return known == all.end() || known->second.contains(name);
}

}  // namespace walsh
