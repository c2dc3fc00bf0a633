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
  const OrderedJson* tools = nullptr;      // it is a list of JSON schemas
  const OrderedJson* documents = nullptr;  // it is a list of objects
  bool add_generation_prompt = false;      // the prompt ends with the beginning of an answer
  // The model is to continue this field of the last message, such as "content" or
  // "reasoning_content". The prompt then ends where the field's text does; add_generation_prompt
  // must be false.
  std::string continue_field;
  // These are further variables as an object, such as enable_thinking. They take precedence over
  // special tokens of the same name.
  OrderedJson variables = OrderedJson::object();
  std::string name;             // it chooses one of several templates; the default one has no name
  std::optional<std::tm> time;  // strftime_now() shows this time, or the local time if it is absent
};

// Holds the templates of a model. Const use is thread-safe.
class ChatTemplate {
 public:
  using Named = std::vector<std::pair<std::string, std::string>>;

  // Takes templates by name ("default" is the default, "tool_use" is used for conversations with
  // tools) and the variables that hold special tokens (bos_token, ...). Messages name the model by
  // `where`. Throws bad_input or limit as jinja::Template::parse does.
  ChatTemplate(const Named& templates, Named special_tokens, std::string_view where);

  // Reads the texts of tokenizer_config.json and of chat_template.jinja, which has precedence;
  // either may be empty. Returns nothing if there is no template. `where` names the latter in
  // messages. Throws bad_input for a malformed file.
  static std::optional<ChatTemplate> from_files(std::string_view tokenizer_config,
                                                std::string_view template_file,
                                                std::string_view where = "chat_template.jinja");

  // Returns the prompt for `messages`, a list of objects with a "role". Throws bad_input for
  // anything else and for a conversation that the template rejects (with the template's own
  // message), and limit if the text or the work would exceed jinja::Limits.
  std::string apply(OrderedJson messages, const ChatOptions& options = {}) const;

  const Named& special_tokens() const { return special_tokens_; }
  // Returns the source of the template that is used with or without tools. Callers see from the
  // names in it which features it supports. Throws bad_input if there are several and none is the
  // default.
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
