#include "grammar/string_formats.h"

#include <fmt/format.h>

#include <map>

namespace walsh::grammar {
namespace {

// February has 28 days in every year, so that all dates exist.
constexpr const char* kDate =
    "[12][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
    "02-(0[1-9]|1[0-9]|2[0-8]))";
constexpr const char* kTime =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
constexpr const char* kDuration =
    "P([0-9]{1,4}W|[0-9]{1,4}D|[0-9]{1,3}Y([0-9]{1,2}M)?|[0-9]{1,4}M|"
    "([0-9]{1,4}D)?T([0-9]{1,4}H([0-9]{1,4}M)?|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}S))";
constexpr const char* kByte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
constexpr const char* kLabel = "[A-Za-z](-?[A-Za-z0-9]){0,20}";
constexpr const char* kLastLabel = "[A-Za-z]((-?[A-Za-z0-9]){0,19}-?[A-Za-z])?";
constexpr const char* kPointer = "(/([^/~]|~[01])*)*";
// A simple regular expression has letters, classes and repetitions, possibly in one group.
constexpr const char* kExpression =
    "([A-Za-z0-9 _,:;=@#%&<>!~-]|\\\\[dDwWsS.()*+?^$|{}\\[\\]\\\\/]|\\."
    "|\\[\\^?(a-z|A-Z|0-9|[A-Za-z0-9_. ]|\\\\[dws])+\\])([*+?]|\\{[1-9][0-9]?\\})?";

using Formats = std::map<std::string, StringFormat>;

void add_times(Formats& formats) {
  formats["date"] = {kDate, "^\\d{4}-\\d{2}-\\d{2}$"};
  formats["time"] = {kTime, ":"};
  formats["date-time"] = {fmt::format("{}T{}", kDate, kTime), "^\\d{4}-\\d{2}-\\d{2}.*:"};
  formats["duration"] = {kDuration, "^[-+]?P"};
}

void add_addresses(Formats& formats) {
  const std::string host = fmt::format("{}(\\.{}){{0,3}}", kLabel, kLabel);
  // Checkers of addresses refuse a last label that ends with a digit.
  const std::string email = "[A-Za-z0-9_+-]{1,20}(\\.[A-Za-z0-9_+-]{1,20}){0,2}@" +
                            fmt::format("({}\\.){{1,3}}{}", kLabel, kLastLabel);
  const std::string path =
      "(/[A-Za-z0-9._~-]{0,30}){0,4}(\\?[A-Za-z0-9._~=&-]{0,60})?"
      "(#[A-Za-z0-9._~-]{0,30})?";
  const std::string uri = "https?://" + host + "(:[1-9][0-9]{0,3})?" + path;
  const std::string ipv4 = fmt::format("({}\\.){{3}}{}", kByte, kByte);
  const std::string group = "[0-9a-fA-F]{1,4}";
  std::string ipv6 = fmt::format("({}:){{7}}{}", group, group);
  for (int left = 0; left <= 6; ++left)  // "::" stands for at least two groups
    ipv6 += fmt::format("|{}::{}",
                        left == 0 ? "" : fmt::format("({}:){{{}}}{}", group, left - 1, group),
                        left == 6 ? "" : fmt::format("(({}:){{0,{}}}{})?", group, 5 - left, group));
  for (const char* name : {"hostname", "host-name", "idn-hostname"})
    formats[name] = {host, "^[^@:/ ]+$"};
  for (const char* name : {"email", "idn-email"})
    formats[name] = {email, "@"};
  formats["name-email"] = {"[A-Za-z]{1,20}( [A-Za-z]{1,20}){0,2} <" + email + ">", "@"};
  for (const char* name : {"uri", "iri", "url", "multi-host-uri"})
    formats[name] = {uri, ":"};
  for (const char* name : {"uri-reference", "iri-reference"})
    formats[name] = {uri + "|[A-Za-z0-9._~-]{0,30}" + path, ""};
  formats["uri-template"] = {
      uri + "|/[a-z0-9._~-]{0,30}(/[a-z0-9._~-]{1,30}|/\\{[a-z][a-z0-9_]{0,20}\\}){0,4}", ""};
  for (const char* name : {"ipv4", "ip-address"})
    formats[name] = {ipv4, "^[0-9.]+$"};
  formats["ipv6"] = {ipv6, ":"};
  formats["ipvanyaddress"] = {ipv4 + "|" + ipv6, ""};
  formats["ipv4interface"] = {fmt::format("{}/([12]?[0-9]|3[0-2])", ipv4), "^[0-9./]+$"};
  formats["ipv4network"] = {
      fmt::format("{}/32|({}\\.){{3}}0/24|({}\\.){{2}}0\\.0/16|{}\\.0\\.0\\.0/8", ipv4, kByte,
                  kByte, kByte),
      "^[0-9./]+$"};
  formats["ipv6interface"] = {fmt::format("({})/([1-9]?[0-9]|1[01][0-9]|12[0-8])", ipv6), ":"};
  formats["ipv6network"] = {fmt::format("({})/128", ipv6), ":"};
  formats["ipvanyinterface"] = {ipv4 + "/32|(" + ipv6 + ")/128", ""};
  formats["ipvanynetwork"] = formats["ipvanyinterface"];
}

void add_codes(Formats& formats) {
  const auto uuid = [](const char* version, const char* variant) {
    return fmt::format("[0-9a-f]{{8}}-[0-9a-f]{{4}}-{}[0-9a-f]{{3}}-{}[0-9a-f]{{3}}-[0-9a-f]{{12}}",
                       version, variant);
  };
  formats["uuid"] = {"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
                     "^[0-9a-fA-F-]{36}$"};
  for (const char* version : {"1", "3", "4", "5", "6", "7", "8"})
    formats[std::string("uuid") + version] = {uuid(version, "[89ab]"), "^[0-9a-fA-F-]{36}$"};
  const auto base64 = [](const char* letters) {
    return fmt::format("({0}{{4}})*({0}[AQgw]==|{0}{{2}}[AEIMQUYcgkosw048]=)?", letters);
  };
  for (const char* name : {"base64", "byte"})
    formats[name] = {base64("[A-Za-z0-9+/]"), "^[A-Za-z0-9+/=\\s]*$"};
  formats["base64url"] = {base64("[A-Za-z0-9_-]"), ""};
  formats["base32"] = {"([A-Z2-7]{8})*", ""};
  formats["base16"] = {"([0-9A-F]{2})*", ""};
  formats["fraction"] = {"-?[0-9]{1,18}(/[1-9][0-9]{0,17})?", ""};
  formats["color"] = {"#[0-9a-f]{6}", ""};
  formats["json-pointer"] = {kPointer, "^(/.*)?$"};
  formats["relative-json-pointer"] = {fmt::format("(0|[1-9]{{1,3}})(#|{})", kPointer), "^[0-9]"};
  formats["regex"] = {
      fmt::format("\\^?({0})*(\\((\\?:)?({0})+(\\|({0})+)*\\)[*+?]?({0})*)?\\$?", kExpression), ""};
  for (const char* name : {"path", "file-path", "directory-path"})
    formats[name] = {"[^\\0]+", ""};
  for (const char* name : {"binary", "password"})
    formats[name] = {"", ""};
}

}  // namespace

const StringFormat* find_format(const std::string& name) {
  static const Formats all = [] {
    Formats formats;
    add_times(formats);
    add_addresses(formats);
    add_codes(formats);
    for (auto& [key, format] : formats)
      if (!format.pattern.empty()) format.pattern = "^(" + format.pattern + ")$";
    return formats;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace walsh::grammar
