// Runs `walsh run` as a conversation, for models with a chat template.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/json.h"
#include "walsh/engine.h"

namespace walsh::cli {

struct ChatSettings {
  GenerationOptions generation;
  OrderedJson variables = OrderedJson::object();  // for the template
  std::string system;                             // empty: none
  std::string first;                // It is said before anything is read, unless empty.
  std::vector<std::string> images;  // The first message shows these contents of files.
  bool single = false;              // If true, the chat ends after one answer.
  bool stream = true;
  std::string history;                                  // file of the line editor; empty: none
  size_t max_bytes = 0;                                 // limit of a message
  bool color = false;                                   // whether typed text is coloured
  bool show_tokens = false;                             // show the tokens of every prompt
  std::function<void(const GenerationResult&)> footer;  // called after every answer
};

// Prints the tokens of a prompt with their texts.
void show_tokens(const Engine& engine, std::span<const int32_t> tokens);

// Reads messages from standard input until its end or /exit, and answers them. Returns the exit
// status: that of the last refused message, or interrupted if Ctrl-C was pressed while no answer
// was running.
int chat(Engine& engine, ChatSettings settings);

}  // namespace walsh::cli
