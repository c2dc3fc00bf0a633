#include "cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace walsh::cli {
namespace {

// Says whether no value follows a flag, one value, or perhaps one of on, off and auto.
enum class Value { none, one, maybe_switch };

struct OtherFlag {
  std::vector<std::string_view> names;
  Value value;
  const char* note;
};

constexpr const char* kBatches = "walsh chooses the sizes of batches itself";
constexpr const char* kThreads = "-t is the number of threads for everything";
constexpr const char* kMemory = "weights are repacked in memory while they are loaded";
constexpr const char* kOneGpu = "walsh uses one GPU: --device cuda:N says which";

const std::vector<OtherFlag>& other_flags() {
  static const std::vector<OtherFlag> flags = {
      {{"-fa", "--flash-attn"}, Value::maybe_switch, "attention is always computed in one pass"},
      {{"-b", "--batch-size"}, Value::one, kBatches},
      {{"-ub", "--ubatch-size"}, Value::one, kBatches},
      {{"-cb", "--cont-batching"}, Value::none, "walsh serve always batches continuously"},
      {{"-tb", "--threads-batch"}, Value::one, kThreads},
      {{"--mlock"}, Value::none, kMemory},
      {{"--mmap"}, Value::none, kMemory},
      {{"--no-mmap"}, Value::none, kMemory},
      {{"-nr", "--no-repack"}, Value::none, kMemory},
      {{"--numa"}, Value::one, "the system places memory and threads"},
      {{"--prio"}, Value::one, "use nice(1)"},
      {{"--poll"}, Value::one, "threads wait as they do"},
      {{"-sm", "--split-mode"}, Value::one, kOneGpu},
      {{"-ts", "--tensor-split"}, Value::one, kOneGpu},
      {{"-mg", "--main-gpu"}, Value::one, kOneGpu},
      {{"--warmup"}, Value::none, "the first text is as fast as the others"},
      {{"--no-warmup"}, Value::none, "nothing is computed before the first text"},
      {{"-dt", "--defrag-thold"}, Value::one, "the cache has pages and does not fragment"},
      {{"--swa-full"}, Value::none, "windows are computed exactly without it"},
      {{"--no-perf"}, Value::none, "-q hides the line of timings"},
      {{"--perf"}, Value::none, "timings are shown unless -q hides them"},
      {{"--simple-io"}, Value::none, "without a terminal nothing but text is written"},
      {{"--log-disable"}, Value::none, "results and messages are separate: use 2> /dev/null"},
      {{"-i", "--interactive"}, Value::none, "without -p walsh run is a conversation"},
  };
  return flags;
}

const OtherFlag* find(std::string_view name) {
  for (const OtherFlag& flag : other_flags())
    if (std::find(flag.names.begin(), flag.names.end(), name) != flag.names.end()) return &flag;
  return nullptr;
}

bool is_switch(std::string text) {
  for (char& c : text)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text == "on" || text == "off" || text == "auto" || text == "0" || text == "1";
}

// Returns the command's flag for an argument, or null. The command spells -ngl as --ngl.
const Flag* own_flag(const Command& command, const std::string& name) {
  if (const Flag* flag = command.find(name)) return flag;
  return name.starts_with("--") ? nullptr : command.find("-" + name);
}

}  // namespace

std::vector<std::string> take_other_flags(const Command& command, size_t first,
                                          std::vector<std::string>& arguments) {
  std::vector<std::string> notes,
      kept(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(first));
  size_t i = first;
  for (; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const Flag* own = argument.starts_with('-') ? own_flag(command, name) : nullptr;
    const OtherFlag* other = own == nullptr ? find(name) : nullptr;
    if (other != nullptr) {
      notes.push_back(fmt::format("{} changes nothing: {}", name, other->note));
      const bool there = equals == argument.npos && i + 1 < arguments.size();
      if (there && (other->value == Value::one ||
                    (other->value == Value::maybe_switch && is_switch(arguments[i + 1]))))
        ++i;
      continue;
    }
    kept.push_back(argument);
    const bool takes = own != nullptr && !own->value.empty();
    if (takes && equals == argument.npos && i + 1 < arguments.size())
      kept.push_back(arguments[++i]);
  }
  kept.insert(kept.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
  arguments = std::move(kept);
  return notes;
}

}  // namespace walsh::cli
