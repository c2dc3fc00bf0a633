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
  // Takes the last message back and returns its content.
  std::string take_back();
  std::string last_role() const;  // empty before the first message
  size_t size() const { return messages_.size(); }

  // Leaves the oldest turn that the prompt still has out of it from now on: a message behind the
  // system prompt and what follows it up to the user's next one. Returns false and does nothing if
  // only the last turn is left.
  bool forget_oldest();

  // The tokens behind which the model answers, or goes on with an answer that begins with `begun`;
  // the template sees the members of `variables`. Throws as ChatTemplate::apply.
  std::vector<int32_t> prompt(const ChatTemplate& chat_template, const OrderedJson& variables,
                              const Tokenizer& tokenizer, const std::string& begun = "") const;

  // {"messages": [{"role": ..., "content": ...}, ...]}, as OpenAI's endpoints take them. Throws as
  // AtomicFile.
  void save(const std::string& path) const;
  // Throws bad_input for anything else, limit for more than 64 MiB, and as read_text_input; the
  // conversation is unchanged then.
  void load(const std::string& path);

 private:
  bool has_system() const;

  std::string system_;
  OrderedJson messages_;
  size_t forgotten_ = 0;  // messages behind the system prompt that the prompt leaves out
};

}  // namespace walsh::cli
