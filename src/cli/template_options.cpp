#include "cli/template_options.h"

#include <filesystem>

#include "io/mapped_file.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

// The function jinja::Template::parse has the same limit.
constexpr uint64_t kMaxTemplateBytes = uint64_t{1} << 20;

}  // namespace

void TemplateOptions::add_to(Command& command) {
  const FlagGroup group = command.group("Chat template (default: the model's own)");
  text_flag_ = &group.add("--chat-template", &text_, "Template in Jinja2's language");
  group.add("--chat-template-file", &file_, "File with a template",
            {.value = "FILE", .excluded = text_flag_});
  group.add("--chat-template-kwargs", &variables_,
            "Further variables of the template, such as '{\"enable_thinking\": false}'",
            {.value = "JSON"});
  // llama.cpp has this flag; templates are always Jinja here.
  group.add("--jinja", &jinja_, "Templates are always Jinja2's");
}

std::optional<TemplateText> TemplateOptions::text() const {
  const bool here = text_flag_ != nullptr && text_flag_->given();
  if (!here && file_.empty()) return std::nullopt;
  TemplateText given{text_, "--chat-template"};
  // Errors name the file without its folder, because clients may see them.
  if (!here)
    given = {read_text_input(file_, kMaxTemplateBytes),
             std::filesystem::path(file_).filename().string()};
  if (given.text.empty()) throw Error(ErrorCode::bad_input, given.where, "is empty");
  // llama.cpp accepts names of built-in templates here; taken as a template, a name would print
  // itself and no message.
  if (given.text.find("{{") == std::string::npos && given.text.find("{%") == std::string::npos)
    throw Error(ErrorCode::bad_input, given.where,
                "does not contain a template: write one in Jinja2, not the name of one");
  return given;
}

OrderedJson TemplateOptions::variables() const {
  constexpr const char* kFlag = "--chat-template-kwargs";
  if (variables_.empty()) return OrderedJson::object();
  OrderedJson object;
  try {
    object = parse_ordered_json(variables_, kFlag);
  } catch (const Error& e) {
    throw Error(ErrorCode::usage, kFlag, e.reason());
  }
  if (!object.is_object()) throw Error(ErrorCode::usage, kFlag, "is not a JSON object");
  return object;
}

}  // namespace walsh::cli
