// Renders templates in the subset of Jinja2 that chat templates use (docs/chat_templates.md).
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json.h"
#include "text/jinja/runtime.h"

namespace walsh::jinja {

// A template never changes; const use is thread-safe. Copies share the tree.
class Template {
 public:
  using Variables = std::vector<std::pair<std::string_view, const OrderedJson*>>;

  // Messages name the template as in "name, line 12: ...". Throws bad_input for a malformed or
  // unsupported template, and limit for one that is too large.
  static Template parse(std::string_view source, std::string_view name);

  // Renders the template with the variables; `time_now` is what strftime_now() shows. Throws
  // bad_input, also for raise_exception(message), whose message is the reason, and limit when the
  // rendering exceeds its limits. Steps in proportion to the variables' size are added to those of
  // `limits`.
  std::string render(const Variables& variables, const std::tm& time_now,
                     const Limits& limits = {}) const;

 private:
  struct Tree;
  explicit Template(std::shared_ptr<const Tree> tree) : tree_(std::move(tree)) {}

  std::shared_ptr<const Tree> tree_;
};

}  // namespace walsh::jinja
