// Reads the chat template that replaces the model's own, and its variables.
#pragma once

#include <optional>
#include <string>

#include "api/load.h"
#include "cli/flags.h"
#include "io/json.h"

namespace walsh::cli {

// Adds --chat-template, --chat-template-file and --chat-template-kwargs.
class TemplateOptions {
 public:
  void add_to(Command& command);
  // Returns whether any of them was given.
  bool given() const { return text_flag_->given() || !file_.empty() || !variables_.empty(); }
  // Returns the template that was given, if any. Throws as read_text_input does, and bad_input for
  // an empty one.
  std::optional<TemplateText> text() const;
  // Returns the variables of the template as an object. Throws usage for anything else.
  OrderedJson variables() const;

 private:
  std::string text_, file_, variables_;
  bool jinja_ = true;
  const Flag* text_flag_ = nullptr;
};

}  // namespace walsh::cli
