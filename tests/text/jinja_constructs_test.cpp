// Tests equality with Jinja2 (as transformers sets it up) on small templates for every construct.
#include <gtest/gtest.h>

#include <string>

#include "text/jinja/template.h"
#include "text_test_util.h"

namespace walsh::jinja {
namespace {

TEST(JinjaConstructs, AreEqualToJinja2) {
  const OrderedJson file = parse_ordered_json(
      test::read_text(std::string(WALSH_TEST_DATA) + "/chat_templates/constructs.json"), "file");
  Template::Variables variables;
  for (const auto& [name, value] : file["variables"].get_ref<const OrderedJson::object_t&>()) {
    variables.emplace_back(name, &value);
  }
  ASSERT_GE(file["cases"].size(), 300u);
  for (const OrderedJson& one : file["cases"]) {
    const std::string source = one["template"];
    std::string made, error;
    try {
      made = Template::parse(source, "case").render(variables, std::tm{});
    } catch (const Error& e) {
      error = e.what();
    }
    if (one.contains("error")) {
      EXPECT_NE(error, "") << source << "\nmade " << made;
    } else {
      EXPECT_EQ(error, "") << source;
      EXPECT_EQ(made, one["expected"].get<std::string>()) << source;
    }
  }
}

}  // namespace
}  // namespace walsh::jinja
