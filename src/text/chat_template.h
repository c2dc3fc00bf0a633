// A model's chat template turns a conversation into a prompt, as transformers'
// apply_chat_template(tokenize=False) does.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json.h"
#include "text/jinja/template.h"

namespace walsh {

struct ChatOptions {
  const OrderedJson* tools = nullptr;      // a list of JSON schemas
  const OrderedJson* documents = nullptr;  // a list of objects
  bool add_generation_prompt = false;      // append the beginning of an answer
  // The model is to continue this field of the last message ("content", "reasoning_content"): the
  // prompt ends where the field's text does. Excludes add_generation_prompt.
  std::string continue_field;
  // These are further variables as an object, such as enable_thinking. They take precedence over
  // special tokens of the same name.
  OrderedJson variables = OrderedJson::object();
  std::string name;             // which of several templates; empty for the default one
  std::optional<std::tm> time;  // what strftime_now() shows; the local time if absent
};

// Holds the templates of a model. Const use is thread-safe.
class ChatTemplate {
 public:
  using Named = std::vector<std::pair<std::string, std::string>>;

  // Takes templates by name ("default" is the default, "tool_use" is used for conversations with
  // tools) and the variables that hold special tokens (bos_token, ...). `where` is for messages.
  // Throws bad_input or limit as jinja::Template::parse does.
  ChatTemplate(const Named& templates, Named special_tokens, std::string_view where);

  // Reads the texts of tokenizer_config.json and of chat_template.jinja, which has precedence;
  // either may be empty. Returns nothing if there is no template. `where` names the latter in
  // messages. Throws bad_input for a malformed file.
  static std::optional<ChatTemplate> from_files(std::string_view tokenizer_config,
                                                std::string_view template_file,
                                                std::string_view where = "chat_template.jinja");

  // Returns the prompt for `messages`, a list of objects with a "role". Throws bad_input for
  // anything else and for a conversation that the template rejects (with the template's own
  // message); limit if the text or the work would exceed jinja::Limits.
  std::string apply(OrderedJson messages, const ChatOptions& options = {}) const;

  const Named& special_tokens() const { return special_tokens_; }
  // Returns the source of the template that is used with or without tools: what it mentions shows
  // what it supports. Throws bad_input if there are several and none is the default.
  const std::string& source(bool with_tools) const;

 private:
  struct Entry {
    std::string name, source;
    jinja::Template compiled;
  };
  const Entry& choose(std::string_view name, bool with_tools) const;

  std::string where_;
  std::vector<Entry> templates_;
  Named special_tokens_;
};

}  // namespace walsh
