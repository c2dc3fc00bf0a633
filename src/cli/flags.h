// Describes commands and their flags as data. Commands declare them; the parser (cli/parser.h),
// help, manual pages and completions read them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace walsh::cli {

enum class Help { brief, all };
// These get the value of a flag, or all its values, as texts, and may throw usage.
using ReadText = std::function<void(const std::string&)>;
using ReadTexts = std::function<void(const std::vector<std::string>&)>;
// Says where values go, and by that what they may be. A bool is set by the flag alone; a vector
// gets a value each time that its flag is given.
using Target = std::variant<Help, bool*, std::optional<bool>*, int*, int64_t*, uint32_t*, double*,
                            std::optional<int>*, std::optional<float>*, std::string*,
                            std::vector<int>*, std::vector<int64_t>*, std::vector<std::string>*,
                            std::optional<std::vector<std::string>>*, ReadText, ReadTexts>;

using Range = std::variant<std::monostate, std::pair<int64_t, int64_t>, std::pair<double, double>>;

template <typename T>
Range between(T least, T most) {
  using Bound = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
  return std::pair<Bound, Bound>(least, most);
}

struct Flag;

// Says which values a flag takes, and with which other flags it goes.
struct FlagRules {
  std::string value = {};  // Help shows this placeholder; if it is empty, the target's kind.
  bool shown = false;      // help shows the default, which is in the target
  bool required = false;
  std::vector<std::string> choices = {};
  bool any_case = false;  // Letters may be in any case; the target gets the listed spelling.
  Range range = {};
  bool at_commas = false;  // one text may have several values
  const Flag* needed = nullptr;
  const Flag* excluded = nullptr;
  // The first returns what stands for a value, the second why a value is refused, or nothing.
  std::function<std::string(const std::string&)> replacement = nullptr, problem = nullptr;
};

// Describes a flag or a positional argument.
struct Flag : FlagRules {
  // These are the names as they are declared: "-c,--ctx", "--stream,!--no-stream" (the second one
  // means the contrary), or "MODEL,-m,--model", where MODEL is a position.
  std::string names;
  std::vector<std::string> shorts, longs;  // They have their dashes.
  std::vector<std::string> positions;      // there is one or none
  Target target;
  std::string help, group;
  bool several = false;  // it may be given several times
  std::string initial;   // this default is shown
  std::string variable;  // this environment variable has the value if the flag is not given
  size_t times = 0;      // It was given this many times.

  // `value` becomes empty if the flag takes none.
  Flag(const std::string& names, Target target, const std::string& help, const std::string& group,
       FlagRules rules);

  bool given() const { return times > 0; }
  std::string name() const;  // the first long name if there is one
};

// Returns the parts of a text that are not empty.
std::vector<std::string> split(const std::string& text, char separator);

struct Command;

// Adds flags that help shows together.
struct FlagGroup {
  Command& command;
  std::string name;

  Flag& add(const std::string& names, Target target, const std::string& help,
            FlagRules rules = {}) const;
};

// Describes a command or, with an empty name, the program.
struct Command {
  std::string name, help, footer;
  std::function<int()> action;       // returns the exit status; throws walsh::Error
  const Command* program = nullptr;  // It has the command.
  std::deque<Flag> flags;            // they are in the order of help
  std::deque<Command> commands;
  std::vector<const Flag*> given_flags;  // they are in the order of the command line
  // Every long flag has a variable that begins so; it is empty if none has.
  std::string variables;

  FlagGroup group(const std::string& text) { return {*this, text}; }
  Flag& add(const std::string& names, Target target, const std::string& text,
            FlagRules rules = {}) {
    return group("Options").add(names, std::move(target), text, std::move(rules));
  }
  // Returns null if there is no flag of this name, which has its dashes.
  const Flag* find(std::string_view flag) const;
  bool given(std::string_view flag) const { return find(flag)->given(); }
  const Command* find_command(std::string_view wanted) const;
};

}  // namespace walsh::cli
