// Keeps a conversation with a model: its messages, and files that store them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "api/image_reader.h"
#include "io/json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace walsh::cli {

class Conversation {
 public:
  // `system` is the system prompt; empty: none.
  explicit Conversation(std::string system) { clear(std::move(system)); }

  void clear(std::string system);
  void clear() { clear(system_); }
  // `content` is UTF-8. In front of it the message has images, the contents of files.
  void say(const std::string& role, const std::string& content,
           const std::vector<std::string>& images = {});
  // Removes the last message, which has no images, and returns its content.
  std::string take_back();
  std::string last_role() const;  // empty before the first message
  size_t size() const { return messages_.size(); }

  // Leaves the oldest turns out of prompts from now on, all but the last one at most. A turn is a
  // user message after the system prompt and everything up to the next one.
  void forget_oldest(size_t turns);
  // Returns how many turns forget_oldest can still leave out.
  size_t forgettable_turns() const;

  // Returns the prompt's tokens, after which the model answers or continues an answer that begins
  // with `begun`; `images` is needed if there are images. The template sees the members of
  // `variables`. Throws as ChatTemplate::apply.
  std::vector<int32_t> prompt(const ChatTemplate& chat_template, const OrderedJson& variables,
                              const Tokenizer& tokenizer, const std::string& begun = "",
                              const ImageReader* images = nullptr) const;

  // Returns the images of the messages that the prompt has, in their order.
  std::vector<std::string> images() const;

  // Writes {"messages": [{"role": ..., "content": ...}, ...]}, the format of OpenAI's endpoints.
  // Throws as AtomicFile, and usage for a conversation with images, which such a file would lack.
  void save(const std::string& path) const;
  // Throws bad_input for another format, limit for more than 64 MiB, and as read_text_input; the
  // conversation is unchanged then.
  void load(const std::string& path);

 private:
  bool has_system() const;
  bool is_user(size_t message) const;
  bool is_remembered(size_t message) const;

  std::string system_;
  OrderedJson messages_;
  std::vector<std::pair<size_t, std::string>> images_;  // Each has the number of its message.
  size_t forgotten_ = 0;  // messages after the system prompt that prompts leave out
};

}  // namespace walsh::cli
