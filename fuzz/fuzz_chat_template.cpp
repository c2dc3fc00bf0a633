// Takes arbitrary bytes as a chat template. It must be refused, give valid UTF-8 within its limits,
// or fail with one error that names it.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/chat_template.h"
#include "text/utf8.h"
#include "walsh/error.h"

namespace {

constexpr size_t kMaxInput = 16 * 1024;
constexpr size_t kMaxOutput = 256 * 1024;

const walsh::OrderedJson& messages() {
  static const walsh::OrderedJson list = walsh::parse_ordered_json(
      R"([{"role": "system", "content": " Be terse.\n"},
          {"role": "user", "content": [{"type": "text", "text": "Stra\u00dfe \ud83d\ude00"}]},
          {"role": "assistant", "content": "", "reasoning_content": "<think>Hm</think>",
           "tool_calls": [{"id": "1", "type": "function",
                           "function": {"name": "f",
                                        "arguments": {"x": [1, -2.5e-9, null, true]}}}]},
          {"role": "tool", "name": "f", "tool_call_id": "1", "content": "{\"a\": 1}"},
          {"role": "user", "content": "A,b,,c"}])",
      "messages");
  return list;
}

const walsh::OrderedJson& tools() {
  static const walsh::OrderedJson list = walsh::parse_ordered_json(
      R"([{"type": "function", "function": {"name": "f", "description": "d",
           "parameters": {"type": "object", "properties": {"x": {"type": "array"}}}}}])",
      "tools");
  return list;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kMaxInput) return 0;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  walsh::jinja::Limits limits;
  limits.steps = 20'000;
  limits.text_bytes = kMaxOutput;
  limits.memory_bytes = size_t{4} << 20;
  const walsh::OrderedJson yes = true, token = "<s>";
  const std::tm time{};
  try {
    const auto made = walsh::jinja::Template::parse(source, "fuzz");
    const std::string text = made.render({{"messages", &messages()},
                                          {"tools", &tools()},
                                          {"add_generation_prompt", &yes},
                                          {"bos_token", &token}},
                                         time, limits);
    if (text.size() > kMaxOutput || !walsh::is_valid_utf8(text)) std::abort();
  } catch (const walsh::Error& error) {
    if (error.code() != walsh::ErrorCode::bad_input && error.code() != walsh::ErrorCode::limit) {
      std::abort();
    }
    if (!error.where().starts_with("fuzz")) std::abort();
  }
  return 0;
}
