// `walsh run` as a conversation with a model that has a chat template.
#pragma once

#include <functional>
#include <string>

#include "walsh/engine.h"

namespace walsh::cli {

struct ChatSettings {
  GenerationOptions generation;
  std::string system;   // empty: none
  std::string first;    // said before anything is read; empty: nothing
  bool single = false;  // ends after the first answer
  bool stream = true;
  std::string history;                                  // of the line editor; empty: none
  size_t max_bytes = 0;                                 // of a message
  std::function<void(const GenerationResult&)> footer;  // behind every answer
};

// Reads messages from standard input until its end or /exit, and answers them. Returns the exit
// status: that of the last message that was refused, interrupted if Ctrl-C came where no answer
// was running.
int chat(Engine& engine, ChatSettings settings);

}  // namespace walsh::cli
