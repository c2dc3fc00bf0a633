// Tests equality with transformers on the templates and conversations of
// tools/make_chat_template_cases.py.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text_test_util.h"

namespace walsh {
namespace {

std::string data(const std::string& name) {
  return test::read_text(std::string(WALSH_TEST_DATA) + "/chat_templates/" + name);
}

std::string hash_of(std::string_view bytes) {
  uint64_t value = 0xCBF29CE484222325u;
  for (const char c : bytes) {
    value = (value ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  }
  std::ostringstream out;
  out.width(16);
  out.fill('0');
  out << std::hex << value;
  return out.str();
}

// Returns Monday the 5th of January 2026, 9:07:03.
std::tm fixed_time() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mday = 5;
  time.tm_hour = 9;
  time.tm_min = 7;
  time.tm_sec = 3;
  time.tm_wday = 1;
  time.tm_yday = 4;
  return time;
}

const OrderedJson& conversations() {
  static const OrderedJson list =
      parse_ordered_json(data("conversations.json"), "conversations.json");
  return list;
}

ChatTemplate make(const std::string& source, const std::string& name) {
  return ChatTemplate(
      {{"default", source}},
      {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}},
      name);
}

struct Rendering {
  std::string kind, text;
};

Rendering render(const ChatTemplate& made, const OrderedJson& conversation) {
  ChatOptions options;
  const auto pointer = [&](const char* key) {
    return conversation.contains(key) ? &conversation[key] : nullptr;
  };
  options.tools = pointer("tools");
  options.documents = pointer("documents");
  options.add_generation_prompt = conversation.contains("add_generation_prompt");
  if (const OrderedJson* field = pointer("continue_final_message")) {
    options.continue_field = field->is_string() ? field->get<std::string>() : "content";
  }
  if (conversation.contains("variables")) options.variables = conversation["variables"];
  options.time = fixed_time();
  try {
    return {"text", made.apply(conversation["messages"], options)};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input) << error.what();
    return {"error", error.reason()};
  }
}

TEST(ChatTemplateCases, OwnTemplatesAreEqual) {
  const OrderedJson expected = parse_ordered_json(data("own.json"), "own.json");
  ASSERT_GE(expected.size(), 4u);
  for (const auto& [file, cases] : expected.items()) {
    const ChatTemplate made = make(data("own/" + file), file);
    ASSERT_EQ(cases.size(), conversations().size());
    for (const OrderedJson& conversation : conversations()) {
      const std::string name = conversation["name"];
      const OrderedJson& wanted = cases[name];
      const Rendering got = render(made, conversation);
      if (wanted.contains("text")) {
        EXPECT_EQ(got.kind, "text") << file << ", " << name << ": " << got.text;
        EXPECT_EQ(got.text, wanted["text"].get<std::string>()) << file << ", " << name;
      } else {
        EXPECT_EQ(got.kind, "error") << file << ", " << name << ": " << got.text;
        if (wanted.contains("raised")) {
          EXPECT_EQ(got.text, wanted["raised"].get<std::string>()) << file << ", " << name;
        }
      }
    }
  }
}

// Returns "" if it is what is expected, else what was made.
std::string difference(const Rendering& got, const std::string& wanted) {
  const bool same = (wanted[0] == 't') == (got.kind == "text") &&
                    (wanted == "e" || wanted.substr(1) == hash_of(got.text).substr(0, 8));
  return same ? "" : got.kind + " " + got.text;
}

// The templates of published models are not part of the repository: the environment variable
// WALSH_TEMPLATES names a folder that has them (docs/chat_templates.md).
TEST(ChatTemplateCases, PublishedTemplatesAreEqual) {
  const char* const folder = std::getenv("WALSH_TEMPLATES");
  if (folder == nullptr) GTEST_SKIP() << "WALSH_TEMPLATES names no folder with templates";
  const OrderedJson published = parse_ordered_json(data("published.json"), "published.json");
  int equal = 0;
  std::vector<std::string> absent;
  for (const auto& [file, entry] : published.items()) {
    const std::filesystem::path path = std::filesystem::path(folder) / file;
    const std::string source =
        std::filesystem::exists(path) ? test::read_text(path.string()) : std::string();
    if (hash_of(source) != entry["hash"].get<std::string>()) {
      absent.push_back(file);
      continue;
    }
    std::string found;
    try {
      const ChatTemplate made = make(source, file);
      std::istringstream renderings(entry["renderings"].get<std::string>());
      for (const OrderedJson& conversation : conversations()) {
        std::string wanted = "none";
        renderings >> wanted;
        const std::string differs = difference(render(made, conversation), wanted);
        if (!differs.empty() && found.empty()) {
          found = conversation["name"].get<std::string>() + ": " + differs;
        }
      }
    } catch (const Error& error) {
      found = error.what();
    }
    EXPECT_EQ(found, "") << file;
    equal += found.empty() ? 1 : 0;
  }
  std::printf("%d templates equal, %zu absent or of another version\n", equal, absent.size());
  EXPECT_GT(equal, 0) << "none of the templates is in " << folder;
}

}  // namespace
}  // namespace walsh
