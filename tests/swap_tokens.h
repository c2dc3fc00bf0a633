// Swaps the ids of two tokens in a tokenizer.json, so that the model writes other text, for tests.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace walsh {

inline void swap_tokens(const std::string& path, const std::string& one, const std::string& other) {
  nlohmann::json tokenizer = nlohmann::json::parse(std::ifstream(path));
  nlohmann::json& ids = tokenizer["model"]["vocab"];
  std::swap(ids.at(one), ids.at(other));
  std::ofstream(path) << tokenizer.dump();
}

// These are tokens of a byte-level vocabulary, which writes bytes with stand-ins.
inline constexpr const char* kWordA =
    "\xC4\xA0"
    "a";                                                // " a"
inline constexpr const char* kEscapeByte = "\xC4\x9B";  // ESC
inline constexpr const char* kHalfCharacter =
    "\xC4\xA0\xC3\xA2";  // " " and the first byte of three

}  // namespace walsh
