// A conversation with a model: its messages, and files that keep them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace walsh::cli {

class Conversation {
 public:
  // `system` is said first; empty: nothing is.
  explicit Conversation(std::string system) { clear(std::move(system)); }

  void clear(std::string system);
  void clear() { clear(system_); }
  void say(const std::string& role, const std::string& content);
  // Takes the last message back.
  void take_back();
  std::string last_role() const;  // empty before the first message
  size_t size() const { return messages_.size(); }

  // The tokens behind which the model answers; `variables` is an object that the template is told.
  // Throws as ChatTemplate::apply.
  std::vector<int32_t> prompt(const ChatTemplate& chat_template, const OrderedJson& variables,
                              const Tokenizer& tokenizer) const;

  // {"messages": [{"role": ..., "content": ...}, ...]}, as OpenAI's endpoints take them. Throws as
  // AtomicFile.
  void save(const std::string& path) const;
  // Throws bad_input for anything else, limit for more than 64 MiB, and as read_text_input; the
  // conversation is unchanged then.
  void load(const std::string& path);

 private:
  std::string system_;
  OrderedJson messages_;
};

}  // namespace walsh::cli
