#include "text/metaspace.h"

#include "io/printable.h"
#include "text/component.h"
#include "text/utf8.h"

namespace walsh {
namespace {

PrependScheme read_scheme(const std::string& name, std::string_view where) {
  if (name == "always") {
    return PrependScheme::always;
  }
  if (name == "first") {
    return PrependScheme::first;
  }
  if (name == "never") {
    return PrependScheme::never;
  }
  throw Error(ErrorCode::bad_input, std::string(where),
              "the prepend_scheme \"" + printable(name, 48) + "\" is not known");
}

}  // namespace

Metaspace read_metaspace(const Json& step, std::string_view where) {
  check_keys(step, {"replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"},
             where);
  Metaspace settings;
  append_utf8(get_character(step, "replacement", where), settings.replacement);
  settings.scheme =
      read_scheme(find_string(step, "prepend_scheme", where).value_or("always"), where);
  settings.split = find_bool(step, "split", where).value_or(true);
  if (!find_bool(step, "add_prefix_space", where).value_or(true)) {
    if (step.contains("prepend_scheme") && settings.scheme != PrependScheme::never) {
      throw Error(ErrorCode::bad_input, std::string(where),
                  "add_prefix_space contradicts prepend_scheme");
    }
    settings.scheme = PrependScheme::never;
  }
  return settings;
}

}  // namespace walsh
