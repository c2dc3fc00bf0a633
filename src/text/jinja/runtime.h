// Holds the state of one rendering, which is its memory, its work so far and its position in the
// template.
#pragma once

#include <ctime>
#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/step_budget.h"
#include "text/jinja/value.h"
#include "walsh/error.h"

namespace walsh::jinja {

// One rendering has these limits. A step is an evaluated node, or 64 bytes that a function
// processes.
struct Limits {
  uint64_t steps = 1'000'000;
  size_t text_bytes = size_t{4} << 20;  // this bounds the output and every intermediate text
  // This bounds everything that is allocated, whether still in use or not.
  size_t memory_bytes = size_t{256} << 20;
  int depth = 1000;      // evaluations nest at most this deep
  int macro_depth = 64;  // calls of macros nest at most this deep
};

constexpr int kMaxContainerDepth = 128;

class Runtime;

// These are the arguments of a call, or of a filter or test after the value that it is applied to.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

using Function = Value (*)(Runtime&, const Value& self, const Arguments&);
struct Macro;
struct Scope;

struct Callable {
  std::string_view name;
  Function function = nullptr;  // it is called with `self`, the object of a method
  Value self{};
  const Macro* macro = nullptr;  // it is a macro instead, with the scope in which it was defined
  Scope* scope = nullptr;
};

class Runtime {
 public:
  // `name` and `time_now` (which strftime_now shows) must outlive this.
  Runtime(std::string_view name, const Limits& limits, const std::tm& time_now)
      : name_(name), limits_(limits), time_now_(time_now), budget_(limits.steps) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  int line = 0;  // it is the current line of the template

  const Limits& limits() const { return limits_; }
  const std::tm& time_now() const { return time_now_; }

  // Throws bad_input naming the template and the line.
  [[noreturn]] void fail(const std::string& reason) const;
  // Throws limit likewise.
  [[noreturn]] void fail_limit(const std::string& reason) const;

  void step(uint64_t steps = 1) {
    if (!budget_.take(steps)) budget_.fail(where());
  }
  // Counts the steps of work that processes this many bytes.
  void pass(size_t bytes) { step(1 + bytes / 64); }
  // Counts memory that is allocated.
  void charge(size_t bytes) {
    memory_ += bytes;
    if (memory_ > limits_.memory_bytes) fail_memory();
  }

  // Makes a text from a copy of `bytes`. Text that lives as long as the runtime needs no copy.
  Value text(std::string_view bytes, bool markup = false);
  Value sequence(Sequence::Kind kind, std::vector<Value> items);
  Value list(std::vector<Value> items) { return sequence(Sequence::Kind::list, std::move(items)); }
  Value tuple(std::vector<Value> items) {
    return sequence(Sequence::Kind::tuple, std::move(items));
  }
  Value iterator(std::vector<Value> items) {
    return sequence(Sequence::Kind::iterator, std::move(items));
  }
  Dict* dict();
  // Adds or replaces an entry. Fails if the key is not hashable.
  void put(Dict& dict, const Value& key, const Value& value);
  // Returns the value of a key, or null if there is no such key. Fails as put.
  const Value* find(const Dict& dict, const Value& key);
  const Value* find(const Dict& dict, std::string_view key);
  Value name_space();
  Value callable(Callable callable);
  // Makes an undefined value. `why` is copied.
  Value undefined(const std::string& why);

  // Guards recursion into values or expressions that may contain themselves.
  class Deeper {
   public:
    explicit Deeper(Runtime& runtime) : runtime_(runtime) {
      if (++runtime.depth_ > runtime.limits_.depth) {
        --runtime.depth_;
        runtime.fail_limit(std::string("nested deeper than ") +
                           std::to_string(runtime.limits_.depth) + " evaluations");
      }
    }
    ~Deeper() { --runtime_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Runtime& runtime_;
  };

 private:
  friend class Builder;
  std::string where() const;
  [[noreturn]] void fail_memory() const;
  std::string_view store(std::string_view bytes);

  std::string_view name_;
  Limits limits_;
  const std::tm& time_now_;
  StepBudget budget_;
  size_t memory_ = 0;
  int depth_ = 0;

  std::vector<std::unique_ptr<char[]>> blocks_;
  char* free_ = nullptr;
  size_t free_bytes_ = 0;
  std::deque<Sequence> sequences_;
  std::deque<Dict> dicts_;
  std::deque<Namespace> namespaces_;
  std::deque<Callable> callables_;
};

// Builds a text, which Limits::text_bytes limits.
class Builder {
 public:
  explicit Builder(Runtime& runtime) : runtime_(runtime) {}

  void append(std::string_view bytes) {
    reserve(bytes.size());
    out_.append(bytes);
  }
  void append(char c, size_t count = 1) {
    reserve(count);
    out_.append(count, c);
  }
  void append_code(char32_t code);
  const std::string& text() const { return out_; }
  std::string take() { return std::move(out_); }
  // Copies the text into the runtime.
  Value value(bool markup = false) { return runtime_.text(out_, markup); }

 private:
  void reserve(size_t bytes);

  Runtime& runtime_;
  std::string out_;
};

// Returns the arguments in the order of `names`, with nullptr for omitted ones. Fails for too many
// arguments and unknown names. The pointers point into `arguments`.
std::vector<const Value*> bind(const Runtime& runtime, std::string_view function,
                               const Arguments& arguments,
                               std::initializer_list<std::string_view> names);

}  // namespace walsh::jinja
