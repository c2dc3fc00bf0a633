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
  images_.clear();
  forgotten_ = 0;
  if (!system_.empty()) say("system", system_);
}

void Conversation::say(const std::string& role, const std::string& content,
                       const std::vector<std::string>& images) {
  OrderedJson parts = OrderedJson::array();
  for (const std::string& image : images) {
    parts.push_back({{"type", "image"}});
    images_.emplace_back(messages_.size(), image);
  }
  parts.push_back({{"type", "text"}, {"text", content}});
  messages_.push_back({{"role", role}, {"content", images.empty() ? OrderedJson(content) : parts}});
}

std::vector<std::string> Conversation::images() const {
  std::vector<std::string> images;
  for (const auto& [message, image] : images_)
    if (is_remembered(message)) images.push_back(image);
  return images;
}

bool Conversation::is_remembered(size_t message) const {
  const size_t system = has_system() ? 1 : 0;
  return message < system || message >= system + forgotten_;
}

std::string Conversation::take_back() {
  std::string content = messages_.back()["content"].get<std::string>();
  messages_.erase(messages_.size() - 1);
  return content;
}

bool Conversation::has_system() const {
  return !messages_.empty() && messages_[0]["role"].get<std::string>() == "system";
}

bool Conversation::is_user(size_t message) const {
  return messages_[message]["role"].get<std::string>() == "user";
}

void Conversation::forget_oldest(size_t turns) {
  const size_t system = has_system() ? 1 : 0;
  for (size_t next = system + forgotten_ + 1; turns > 0 && next < messages_.size(); ++next) {
    if (!is_user(next)) continue;
    forgotten_ = next - system;
    turns -= 1;
  }
}

size_t Conversation::forgettable_turns() const {
  size_t turns = 0;
  for (size_t i = (has_system() ? 1 : 0) + forgotten_ + 1; i < messages_.size(); ++i)
    turns += is_user(i) ? 1 : 0;
  return turns;
}

std::string Conversation::last_role() const {
  return messages_.empty() ? "" : messages_.back()["role"].get<std::string>();
}

std::vector<int32_t> Conversation::prompt(const ChatTemplate& chat_template,
                                          const OrderedJson& variables, const Tokenizer& tokenizer,
                                          const std::string& begun,
                                          const ImageReader* images) const {
  ChatOptions options;
  options.variables = variables;
  options.add_generation_prompt = true;
  OrderedJson remembered = OrderedJson::array();
  for (size_t i = 0; i < messages_.size(); ++i)
    if (is_remembered(i)) remembered.push_back(messages_[i]);
  std::string text = chat_template.apply(remembered, options) + begun;
  if (images != nullptr && !this->images().empty()) text = images->prompt_text(std::move(text));
  return tokenizer.encode(text, false);
}

void Conversation::save(const std::string& path) const {
  if (!images_.empty())
    throw Error(ErrorCode::usage, path, "conversations with images are not saved");
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
  messages_ = std::move(messages);
  images_.clear();
  system_ = has_system() ? messages_[0]["content"].get<std::string>() : "";
  forgotten_ = 0;
}

}  // namespace walsh::cli
