// Errors of templates name their line; hostile templates end early with one clear error.
#include <gtest/gtest.h>

#include <string>

#include "text/jinja/template.h"
#include "text_test_util.h"

namespace walsh::jinja {
namespace {

using test::error_of;

std::string render(const std::string& source, const Limits& limits = {}) {
  return Template::parse(source, "t").render({}, std::tm{}, limits);
}

std::string refusal(const std::string& source) {
  return error_of([&] { render(source); });
}

std::string limit(const std::string& source, const Limits& limits = {}) {
  return error_of([&] { render(source, limits); }, ErrorCode::limit);
}

std::string repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += text;
  return out;
}

TEST(JinjaErrors, NameTheLineOfTheTemplate) {
  EXPECT_EQ(refusal("a\n{{ x.y }}"), "t, line 2: 'x' is undefined");
  EXPECT_EQ(refusal("{% if true %}\n\n{{ 1 / 0 }}{% endif %}"), "t, line 3: division by zero");
  EXPECT_EQ(refusal("{{ 'a\nb' }}\n{{ 1 +\n   'a' }}"),
            "t, line 3: unsupported operand types for +: 'int' and 'str'");
  EXPECT_EQ(refusal("{# a\nb #}\n{{ x() }}"), "t, line 3: 'x' is undefined");
  EXPECT_EQ(refusal("{% macro f() %}\n{{ [] + 1 }}{% endmacro %}\n{{ f() }}"),
            "t, line 2: unsupported operand types for +: 'list' and 'int'");
  EXPECT_EQ(refusal("\n{{ 'x'|nosuch }}"), "t, line 2: there is no filter 'nosuch'");
}

TEST(JinjaErrors, OfSyntaxNameTheLineToo) {
  EXPECT_EQ(refusal("\n{% if x %}\n"), "t, line 2: the template ends where 'endif' is expected");
  EXPECT_EQ(refusal("\n\n{{ ) }}"), "t, line 3: unexpected ')'");
  EXPECT_EQ(refusal("{{ 'a }}"), "t, line 1: a string without an end");
  EXPECT_EQ(refusal("{% include 'x' %}"),
            "t, line 1: the tag 'include' is unknown or not supported");
  EXPECT_EQ(refusal("{{ a \xC3\xA9 }}"), "t, line 1: expected '}}', found '\\xc3\\xa9'");
  EXPECT_EQ(refusal("{{ a $ }}"), "t, line 1: unexpected character '$'");
  EXPECT_EQ(refusal("{{ \xFF }}"), "t: is not valid UTF-8");
}

TEST(JinjaErrors, AreTheTemplatesOwnWords) {
  EXPECT_EQ(refusal("\n{{ raise_exception('Roles\nmust alternate') }}"),
            "t, line 2: Roles must alternate");
  EXPECT_EQ(refusal("{{ raise_exception('x' * 5000) }}"),
            "t, line 1: " + std::string(1000, 'x') + "...");
}

TEST(JinjaErrors, TemplatesChangeNothing) {
  EXPECT_EQ(refusal("{% set l = [] %}{{ l.append(1) }}"),
            "t, line 1: access to attribute 'append' of 'list' object is unsafe: templates change "
            "nothing");
  EXPECT_NE(refusal("{{ {}.update({}) }}"), "");
  EXPECT_NE(refusal("{% set n = namespace() %}{% set n.__class__ = 1 %}"), "");
}

TEST(JinjaLimits, EndLoops) {
  EXPECT_EQ(
      limit("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}\n{% endfor %}"),
      "t, line 1: takes more than 1000000 steps");
  EXPECT_EQ(limit("\n{{ range(10**12) }}"), "t, line 2: range too big: more than 100000 items");
  EXPECT_NE(limit("{% for a in range(99999) %}{{ ('x' * 100000)[99999] }}{% endfor %}"), "");
  EXPECT_NE(limit("{% for a in range(99999) %}{{ 'b' in 'a' * 1000000 }}{% endfor %}"), "");
  EXPECT_NE(limit("{{ ('a' * 4000000).rfind('a' * 2000000 ~ 'b') }}"), "");
}

TEST(JinjaLimits, EndGrowingTexts) {
  EXPECT_EQ(limit("{{ 'a' * 10**10 }}"), "t, line 1: makes a text of more than 4194304 bytes");
  EXPECT_NE(limit("{{ 'a' * 10**30 }}"), "");
  EXPECT_NE(limit("{{ 'a' * 4000000 ~ 'a' * 4000000 }}"), "");
  EXPECT_NE(limit("{{ ('a' * 100000)|replace('a', 'b' * 100000) }}"), "");
  EXPECT_NE(limit("{{ '%999999999999d' % 1 }}"), "");
  EXPECT_NE(limit("{{ '{:>99999999999}'.format('') }}"), "");
  EXPECT_NE(limit("{{ 'a'.center(10**9) }}"), "");
  EXPECT_NE(limit("{{ 'a'|indent(10**9) }}"), "");
  EXPECT_NE(limit("{% for i in range(5000) %}" + std::string(1000, 'x') + "{% endfor %}"), "");
  EXPECT_EQ(render("{% for i in range(4000) %}" + std::string(1000, 'x') + "{% endfor %}").size(),
            4'000'000u);
}

// Only what a template adds is limited: a long context takes a conversation of many megabytes.
TEST(JinjaLimits, TextsMayHaveWhatTheVariablesHave) {
  const OrderedJson text = std::string(6'000'000, 'a');
  const auto size = [&](const std::string& source) {
    return Template::parse(source, "t").render({{"text", &text}}, std::tm{}).size();
  };
  EXPECT_EQ(size("<{{ text }}>"), 6'000'002u);
  EXPECT_EQ(size("{{ '<' + (text|trim) + '>' }}"), 6'000'002u);
  EXPECT_NE(error_of([&] { size("{{ text }}{{ text }}"); }, ErrorCode::limit), "");
}

TEST(JinjaLimits, EndGrowingValues) {
  EXPECT_NE(limit("{{ [0] * 10**10 }}"), "");
  EXPECT_NE(limit("{{ [0] * 10**30 }}"), "");
  EXPECT_NE(limit("{% set n = namespace(l=[0]) %}{% for i in range(99) %}{% set n.l = n.l + n.l "
                  "%}{% endfor %}"),
            "");
  EXPECT_NE(limit("{% set n = namespace(s='x') %}{% for i in range(900) %}{% set n.s = n.s ~ 'y' * "
                  "4000 %}{% endfor %}"),
            "");
  EXPECT_EQ(limit("{{ 10**40 }}"), "t, line 1: an integer needs more than 128 bits");
  EXPECT_NE(limit("{{ 2**(10**9) }}"), "");
  EXPECT_NE(limit("{{ -(2**126) * 4 }}"), "");
}

TEST(JinjaLimits, NumbersOfMoreThan128BitsAreNeverWrong) {
  const std::string message = "t, line 2: an integer needs more than 128 bits";
  for (const char* source : {
           "'170141183460469231731687303715884105728'|int",
           "'-170141183460469231731687303715884105729'|int",
           "1e39|int",
           "'-1e39'|int",
           "(2**126 - 1 + 2**126)|round(-38)",
           "(-(2**126) - 2**126)|abs",
           "(2**126 - 1 + 2**126) + 1",
           "'%d' % 1e300",
       }) {
    EXPECT_EQ(limit("\n{{ " + std::string(source) + " }}"), message) << source;
  }
  EXPECT_EQ(refusal("\n{{ 170141183460469231731687303715884105728 }}"),
            "t, line 2: an integer of more than 128 bits");
  EXPECT_EQ(render("{{ '-170141183460469231731687303715884105728'|int }}"),
            "-170141183460469231731687303715884105728");
}

TEST(JinjaLimits, EndRecursion) {
  EXPECT_EQ(limit("{% macro f() %}\n{{ f() }}{% endmacro %}{{ f() }}"),
            "t, line 2: calls of macros are nested deeper than 64 levels");
  EXPECT_NE(limit("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}"), "");
  const std::string nest = "{% for i in range(9999) %}{% set n.v = [n.v] %}{% endfor %}";
  EXPECT_NE(limit("{% set n = namespace(v=0) %}" + nest), "");
  EXPECT_NE(limit("{% set n = namespace() %}{% set n.n = [n] %}{{ n }}"), "");
  // A chain of namespaces is no container, and its end is not recursive.
  EXPECT_EQ(render("{% set n = namespace(v=0) %}{% for i in range(90000) %}"
                   "{% set n.v = namespace(v=n.v) %}{% endfor %}ok"),
            "ok");
  // Every level twice: comparing, hashing and printing are counted.
  const std::string twice =
      "{% set n = namespace(v=(), w=()) %}{% for i in range(60) %}{% set n.v = (n.v, n.v) %}"
      "{% set n.w = (n.w, n.w) %}{% endfor %}";
  EXPECT_NE(limit(twice + "{{ n.v == n.w }}"), "");
  EXPECT_NE(limit(twice + "{{ {n.v: 1} }}"), "");
  EXPECT_NE(limit(twice + "{{ n.v|string|length }}"), "");
  EXPECT_NE(limit(twice + "{{ n.v|tojson|length }}"), "");
}

TEST(JinjaLimits, EndDeepSyntax) {
  EXPECT_NE(refusal("{{ " + repeat("(", 10000) + "1" + repeat(")", 10000) + " }}"), "");
  EXPECT_NE(refusal("{{ " + repeat("[", 10000) + repeat("]", 10000) + " }}"), "");
  EXPECT_NE(refusal("{{ " + repeat("not ", 10000) + "1 }}"), "");
  EXPECT_NE(refusal("{{ " + repeat("-", 10000) + "1 }}"), "");
  EXPECT_NE(refusal("{{ " + repeat("1 if 1 else ", 10000) + "1 }}"), "");
  EXPECT_NE(refusal("{{ 1" + repeat("+1", 10000) + " }}"), "");
  EXPECT_NE(refusal("{{ a" + repeat(".a", 10000) + " }}"), "");
  EXPECT_NE(refusal("{{ a" + repeat("|upper", 10000) + " }}"), "");
  EXPECT_NE(refusal("{% for " + repeat("(", 10000) + "a in b %}{% endfor %}"), "");
  EXPECT_NE(refusal(repeat("{% if a %}", 10000)), "");
  EXPECT_EQ(render("{{ 0" + repeat("+1", 300) + " }}"), "300");
  EXPECT_EQ(render(repeat("{% if true %}", 60) + "x" + repeat("{% endif %}", 60)), "x");
  const std::string many = "{% if a %}" + repeat("{% elif a %}", 20000) + "{% endif %}";
  EXPECT_EQ(render(many), "");
  EXPECT_NE(limit(std::string(2'000'000, 'x')), "");
}

TEST(JinjaLimits, GrowWithTheConversation) {
  const OrderedJson text = std::string(3'000'000, 'x');
  const std::string source = "{% for i in range(40) %}{{ 'y' in s|trim }}{% endfor %}";
  EXPECT_NE(Template::parse(source, "t").render({{"s", &text}}, std::tm{}), "");
  OrderedJson deep;
  for (int i = 0; i < 100; ++i)
    deep = OrderedJson::array({deep});
  EXPECT_NE(error_of(
                [&] {
                  Template::parse("", "t").render({{"s", &deep}}, std::tm{});
                },
                ErrorCode::limit),
            "");
}

}  // namespace
}  // namespace walsh::jinja
