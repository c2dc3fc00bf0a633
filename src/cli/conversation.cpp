#include "cli/conversation.h"

#include <fmt/format.h>

#include <span>

#include "io/atomic_file.h"
#include "io/mapped_file.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;

bool is_text(const OrderedJson& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_string();
}

}  // namespace

void Conversation::clear(std::string system) {
  system_ = std::move(system);
  messages_ = OrderedJson::array();
  if (!system_.empty()) say("system", system_);
}

void Conversation::say(const std::string& role, const std::string& content) {
  messages_.push_back({{"role", role}, {"content", content}});
}

void Conversation::take_back() {
  messages_.erase(messages_.size() - 1);
}

std::string Conversation::last_role() const {
  return messages_.empty() ? "" : messages_.back()["role"].get<std::string>();
}

std::vector<int32_t> Conversation::prompt(const ChatTemplate& chat_template,
                                          const OrderedJson& variables,
                                          const Tokenizer& tokenizer) const {
  ChatOptions options;
  options.variables = variables;
  options.add_generation_prompt = true;
  return tokenizer.encode(chat_template.apply(messages_, options), false);
}

void Conversation::save(const std::string& path) const {
  const OrderedJson object = {{"messages", messages_}};
  const std::string text = object.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
  AtomicFile file(path);
  file.append(std::as_bytes(std::span(text)));
  file.commit();
}

void Conversation::load(const std::string& path) {
  const OrderedJson object = parse_ordered_json(read_text_input(path, kMaxFileBytes), path);
  const auto refuse = [&](const std::string& where) {
    throw Error(ErrorCode::bad_input, path,
                fmt::format("{}: expected \"messages\" with \"role\" and \"content\"", where));
  };
  if (!object.is_object() || !object.contains("messages") || !object["messages"].is_array())
    refuse("the file");
  OrderedJson messages = OrderedJson::array();
  for (size_t i = 0; i < object["messages"].size(); ++i) {
    const OrderedJson& message = object["messages"][i];
    if (!message.is_object() || !is_text(message, "role") || !is_text(message, "content"))
      refuse(fmt::format("messages[{}]", i));
    messages.push_back(message);
  }
  const bool has_system = !messages.empty() && messages[0]["role"] == "system";
  system_ = has_system ? messages[0]["content"].get<std::string>() : "";
  messages_ = std::move(messages);
}

}  // namespace walsh::cli
