// `walsh run` as a conversation with a model that has a chat template.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "io/json.h"
#include "walsh/engine.h"

namespace walsh::cli {

struct ChatSettings {
  GenerationOptions generation;
  OrderedJson variables = OrderedJson::object();  // that the template is told
  std::string system;                             // empty: none
  std::string first;                              // said before anything is read; empty: nothing
  bool single = false;                            // ends after the first answer
  bool stream = true;
  std::string history;                                  // of the line editor; empty: none
  size_t max_bytes = 0;                                 // of a message
  bool color = false;                                   // of what is typed
  bool show_tokens = false;                             // of every prompt
  std::function<void(const GenerationResult&)> footer;  // behind every answer
};

// The tokens of a prompt with their texts, as a message.
void show_tokens(const Engine& engine, std::span<const int32_t> tokens);

// Reads messages from standard input until its end or /exit, and answers them. Returns the exit
// status: that of the last message that was refused, interrupted if Ctrl-C came where no answer
// was running.
int chat(Engine& engine, ChatSettings settings);

}  // namespace walsh::cli
