#include "text/chat_template.h"

#include <algorithm>

#include "io/printable.h"
#include "text/jinja/letters.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr const char* kTokenNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
// Templates use these names for the text of a model's reasoning; the first one is filled from the
// others.
constexpr const char* kReasoningFields[] = {"reasoning_content", "thinking", "reasoning"};
// This tag marks where the continued text ends. The trailing space shows whether the template
// strips the text.
constexpr std::string_view kTag = "CONTINUE_FINAL_MESSAGE_TAG ";

[[noreturn]] void fail(std::string_view where, const std::string& reason) {
  throw Error(ErrorCode::bad_input, std::string(where), reason);
}

const OrderedJson* find(const OrderedJson& object, const char* key) {
  const auto place = object.find(key);
  return place == object.end() || place->is_null() ? nullptr : &*place;
}

// Reads the special tokens, which are strings, or objects that describe an added token.
ChatTemplate::Named read_tokens(const OrderedJson& config, std::string_view where) {
  ChatTemplate::Named tokens;
  for (const char* name : kTokenNames) {
    const OrderedJson* token = find(config, name);
    if (token != nullptr && token->is_object()) token = find(*token, "content");
    if (token == nullptr) continue;
    if (!token->is_string()) fail(where, std::string(name) + " is not a string");
    tokens.emplace_back(name, token->get<std::string>());
  }
  return tokens;
}

ChatTemplate::Named read_templates(const OrderedJson& config, std::string_view where) {
  const OrderedJson* given = find(config, "chat_template");
  if (given == nullptr) return {};
  if (given->is_string()) return {{"default", given->get<std::string>()}};
  ChatTemplate::Named templates;
  const auto text = [&](const OrderedJson& entry, const char* key) {
    const OrderedJson* value = entry.is_object() ? find(entry, key) : nullptr;
    if (value == nullptr || !value->is_string()) {
      fail(where, std::string("an entry of chat_template has no string \"") + key + "\"");
    }
    return value->get<std::string>();
  };
  if (!given->is_array()) fail(where, "chat_template is neither a string nor a list");
  for (const OrderedJson& entry : *given) {
    templates.emplace_back(text(entry, "name"), text(entry, "template"));
  }
  return templates;
}

// Returns the message without null fields, with the reasoning under every name that templates use.
OrderedJson normal_message(OrderedJson message, std::string_view where) {
  if (!message.is_object()) fail(where, "a message is not an object");
  OrderedJson reasoning;
  for (const char* name : kReasoningFields) {
    const OrderedJson* value = reasoning.is_null() ? find(message, name) : nullptr;
    if (value != nullptr) reasoning = *value;
  }
  // Members are appended without a search: keys are unique, and there may be very many.
  OrderedJson out = OrderedJson::object();
  auto& members = out.get_ref<OrderedJson::object_t&>();
  if (!reasoning.is_null()) {
    const OrderedJson* own = find(message, "thinking");
    members.push_back({"thinking", own != nullptr ? *own : reasoning});
  }
  bool placed = reasoning.is_null();
  for (auto& [key, value] : message.get_ref<OrderedJson::object_t&>()) {
    if (value.is_null() || (!reasoning.is_null() && key == "thinking")) continue;
    placed |= key == "reasoning_content";
    members.push_back({key, std::move(value)});
  }
  if (!placed) members.push_back({"reasoning_content", std::move(reasoning)});
  return out;
}

// Renders a conversation whose last message is to be continued.
class Continuation {
 public:
  // Appends the tag to the text that is to be continued.
  Continuation(OrderedJson& last, const std::string& field, const std::string& source,
               std::string_view where)
      : where_(where) {
    const OrderedJson* found = find(last, field.c_str());
    if (found == nullptr) fail(where, "the last message has no \"" + field + "\" to continue");
    std::vector<std::string> fields = {field};
    if (std::find(std::begin(kReasoningFields), std::end(kReasoningFields), field) !=
        std::end(kReasoningFields)) {
      const OrderedJson value = *found;
      fields.clear();
      for (const char* name : kReasoningFields) {
        if (last.contains(name) && last[name] == value) fields.emplace_back(name);
      }
    }
    if (std::none_of(fields.begin(), fields.end(),
                     [&](const std::string& name) { return source.find(name) != source.npos; })) {
      fail(where, "the template does not use \"" + field + "\", which is to be continued");
    }
    for (const std::string& name : fields)
      add_tag(last[name]);
  }

  // Returns the rendered text up to the tag.
  std::string cut(const std::string& text) const {
    const std::string_view sign = kTag.substr(0, kTag.size() - 1);
    const size_t place = text.rfind(sign);
    const std::string_view continued = jinja::strip_left(jinja::strip_right(continued_));
    if (place == text.npos || jinja::find_text(text, continued) == text.npos) {
      fail(where_, "the text that is to be continued does not appear in what the template makes");
    }
    const std::string_view head = std::string_view(text).substr(0, place);
    if (text.compare(place, kTag.size(), kTag) == 0) return std::string(head);
    return std::string(jinja::strip_right(head));
  }

 private:
  void add_tag(OrderedJson& value) {
    if (value.is_array()) {
      for (auto part = value.rbegin(); part != value.rend(); ++part) {
        if (part->is_object() && part->contains("text")) return add_tag((*part)["text"]);
      }
      fail(where_, "the last message has no text to continue");
    }
    if (!value.is_string()) fail(where_, "what is to be continued is not a text");
    continued_ = value.get<std::string>();
    value = continued_ + std::string(kTag);
  }

  std::string_view where_;
  std::string continued_;
};

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  localtime_r(&now, &time);
  return time;
}

}  // namespace

ChatTemplate::ChatTemplate(const Named& templates, Named special_tokens, std::string_view where)
    : where_(where), special_tokens_(std::move(special_tokens)) {
  for (const auto& [name, source] : templates) {
    const std::string shown =
        templates.size() == 1 ? where_ : where_ + ", template " + printable(name, 48);
    templates_.push_back({name, source, jinja::Template::parse(source, shown)});
  }
  if (templates_.empty()) fail(where_, "has no chat template");
}

std::optional<ChatTemplate> ChatTemplate::from_files(std::string_view tokenizer_config,
                                                     std::string_view template_file,
                                                     std::string_view where) {
  constexpr std::string_view kConfig = "tokenizer_config.json";
  Named templates, tokens;
  if (!tokenizer_config.empty()) {
    const OrderedJson config = parse_ordered_json(tokenizer_config, kConfig);
    if (!config.is_object()) fail(kConfig, "is not an object");
    tokens = read_tokens(config, kConfig);
    if (template_file.empty()) templates = read_templates(config, kConfig);
  }
  if (!template_file.empty()) {
    templates = {{"default", std::string(template_file)}};
    return ChatTemplate(templates, std::move(tokens), where);
  }
  if (templates.empty()) return std::nullopt;
  return ChatTemplate(templates, std::move(tokens), "tokenizer_config.json, chat_template");
}

const ChatTemplate::Entry& ChatTemplate::choose(std::string_view name, bool with_tools) const {
  const auto find = [&](std::string_view wanted) -> const Entry* {
    for (const Entry& entry : templates_) {
      if (entry.name == wanted) return &entry;
    }
    return nullptr;
  };
  if (!name.empty()) {
    if (const Entry* entry = find(name)) return *entry;
    fail(where_, "has no template \"" + printable(name, 48) + "\"");
  }
  if (templates_.size() == 1) return templates_[0];
  const Entry* entry = with_tools ? find("tool_use") : nullptr;
  if (entry == nullptr) entry = find("default");
  if (entry == nullptr) fail(where_, "has several templates and none called \"default\"");
  return *entry;
}

const std::string& ChatTemplate::source(bool with_tools) const {
  return choose("", with_tools).source;
}

std::string ChatTemplate::apply(OrderedJson messages, const ChatOptions& options) const {
  const Entry& entry = choose(options.name, options.tools != nullptr);
  if (!messages.is_array() || messages.empty()) fail(where_, "the conversation has no message");
  if (!options.continue_field.empty() && options.add_generation_prompt) {
    fail(where_, "a message is to be continued, and an answer is to be begun");
  }
  for (OrderedJson& message : messages)
    message = normal_message(std::move(message), where_);
  std::optional<Continuation> continuation;
  if (!options.continue_field.empty()) {
    continuation.emplace(messages.back(), options.continue_field, entry.source, where_);
  }
  const OrderedJson nothing, prompt = options.add_generation_prompt;
  std::vector<OrderedJson> tokens;
  tokens.reserve(special_tokens_.size());
  jinja::Template::Variables variables = {
      {"messages", &messages},
      {"tools", options.tools != nullptr ? options.tools : &nothing},
      {"documents", options.documents != nullptr ? options.documents : &nothing},
      {"add_generation_prompt", &prompt}};
  if (!options.variables.is_object()) fail(where_, "the variables are not an object");
  for (const auto& [key, value] : options.variables.get_ref<const OrderedJson::object_t&>()) {
    for (const auto& known : variables) {
      if (known.first == key) fail(where_, "the variable " + printable(key, 48) + " cannot be set");
    }
    variables.emplace_back(key, &value);
  }
  for (const auto& [name, token] : special_tokens_) {
    tokens.emplace_back(token);
    if (!options.variables.contains(name)) variables.emplace_back(name, &tokens.back());
  }
  const std::string text =
      entry.compiled.render(variables, options.time ? *options.time : local_time());
  return continuation ? continuation->cut(text) : text;
}

}  // namespace walsh
