#include "cli/flags.h"

#include <fmt/format.h>

#include <algorithm>

namespace walsh::cli {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

namespace {

template <typename T, typename... Others>
constexpr bool kIsOneOf = (std::is_same_v<T, Others> || ...);

// Returns the placeholder of values that go to a target, as CLI11 has it.
std::string placeholder_of(const Target& target) {
  return std::visit(
      [](const auto& to) -> std::string {
        using T = std::decay_t<decltype(to)>;
        if (kIsOneOf<T, Help, bool*, std::optional<bool>*>) return "";
        if (kIsOneOf<T, uint32_t*>) return "UINT";
        if (kIsOneOf<T, double*, std::optional<float>*>) return "FLOAT";
        return kIsOneOf<T, int*, int64_t*, std::optional<int>*, std::vector<int>*,
                        std::vector<int64_t>*>
                   ? "INT"
                   : "TEXT";
      },
      target);
}

bool takes_several(const Target& target) {
  return std::visit(
      [](const auto& to) {
        return kIsOneOf<std::decay_t<decltype(to)>, std::vector<int>*, std::vector<int64_t>*,
                        std::vector<std::string>*, std::optional<std::vector<std::string>>*,
                        ReadTexts>;
      },
      target);
}

// Returns what a target holds, as a text.
std::string text_of(const Target& target) {
  return std::visit(
      [](const auto& to) -> std::string {
        using T = std::decay_t<decltype(to)>;
        if constexpr (kIsOneOf<T, int*, int64_t*, uint32_t*, double*, std::string*>)
          return fmt::format("{}", *to);
        if constexpr (kIsOneOf<T, std::vector<int64_t>*, std::vector<std::string>*>)
          return fmt::format("[{}]", fmt::join(*to, ","));
        return "";
      },
      target);
}

}  // namespace

Flag::Flag(const std::string& all_names, Target to, const std::string& text,
           const std::string& in_group, FlagRules rules)
    : FlagRules(std::move(rules)),
      names(all_names),
      target(std::move(to)),
      help(text),
      group(in_group),
      several(takes_several(target)) {
  if (const std::string kind = placeholder_of(target); kind.empty() || value.empty()) value = kind;
  if (shown) initial = text_of(target);
  for (const std::string& one : split(names, ',')) {
    const std::string bare = one.substr(one.starts_with('!') ? 1 : 0);
    (bare.starts_with("--") ? longs : bare.starts_with('-') ? shorts : positions).push_back(bare);
  }
}

std::string Flag::name() const {
  for (const auto* kind : {&longs, &shorts, &positions})
    if (!kind->empty()) return kind->front();
  return names;
}

Flag& FlagGroup::add(const std::string& names, Target target, const std::string& help,
                     FlagRules rules) const {
  return command.flags.emplace_back(names, std::move(target), help, name, std::move(rules));
}

const Flag* Command::find(std::string_view flag) const {
  for (const Flag& one : flags)
    for (const auto* kind : {&one.longs, &one.shorts})
      if (std::find(kind->begin(), kind->end(), flag) != kind->end()) return &one;
  return nullptr;
}

const Command* Command::find_command(std::string_view wanted) const {
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&](const Command& command) { return command.name == wanted; });
  return found == commands.end() ? nullptr : &*found;
}

}  // namespace walsh::cli
