// Defines the values of templates, which have Python's semantics, because templates are written for
// these.
//
// Everything that a value refers to belongs to the Runtime of one rendering (or to the caller's
// variables, which outlive it); values are copied freely and own nothing.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace walsh::jinja {

// An Integer is wide enough for every integer in JSON; overflow is an error, not a wrong result.
__extension__ typedef __int128 Integer;
__extension__ typedef unsigned __int128 Unsigned;

// Returns the absolute value, which exists also for the least integer.
inline Unsigned magnitude(Integer value) {
  return value < 0 ? -static_cast<Unsigned>(value) : static_cast<Unsigned>(value);
}

struct Undefined {
  std::string_view why;  // it is the message if a value is needed
};
struct None {};
struct Text {
  std::string_view bytes;  // it is UTF-8
  // `+` and `%` escape texts that are added to the result of escape or safe.
  bool markup = false;
};
struct Sequence;
struct Dict;
struct Namespace;
struct Callable;
class Loop;

class Value {
 public:
  using Data = std::variant<Undefined, None, bool, Integer, double, Text, Sequence*, Dict*,
                            Namespace*, Callable*, Loop*>;

  Value() = default;
  template <typename T>
  requires(std::is_same_v<T, Undefined> || std::is_same_v<T, None> || std::is_same_v<T, bool> ||
           std::is_same_v<T, Integer> || std::is_same_v<T, double> || std::is_same_v<T, Text> ||
           std::is_same_v<T, Sequence*> || std::is_same_v<T, Dict*> ||
           std::is_same_v<T, Namespace*> || std::is_same_v<T, Callable*> ||
           std::is_same_v<T, Loop*>) Value(T value)
      : data_(value) {}  // NOLINT: a value is what it holds

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  // Returns null if the value has another type.
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }
  const Text* text() const { return as<Text>(); }
  Sequence* sequence() const { return pointer<Sequence*>(); }
  Dict* dict() const { return pointer<Dict*>(); }
  Namespace* name_space() const { return pointer<Namespace*>(); }
  Callable* callable() const { return pointer<Callable*>(); }
  Loop* loop() const { return pointer<Loop*>(); }
  bool undefined() const { return is<Undefined>(); }
  bool none() const { return is<None>(); }
  const Data& data() const { return data_; }

 private:
  template <typename T>
  T pointer() const {
    const T* value = as<T>();
    return value == nullptr ? nullptr : *value;
  }

  Data data_;
};

struct Sequence {
  enum class Kind : uint8_t { list, tuple, range, iterator, keys, values, items };

  // Returns whether the value has a length and supports indices. Iterators can be read only once.
  bool indexed() const { return kind == Kind::list || kind == Kind::tuple || kind == Kind::range; }

  Kind kind;
  int depth;  // it counts levels of containers, this one included
  std::vector<Value> items;
  size_t taken = 0;                            // this many items were read from an iterator already
  Integer start = 0, stop = 0, step = 1;       // a range has them
  std::vector<std::string_view> attributes{};  // a tuple's members may have these names
};

struct Dict {
  int depth = 1;
  std::vector<std::pair<Value, Value>> entries;  // they are in the order of insertion
  // The keys are hashes; only a large dict has them.
  std::unordered_multimap<uint64_t, uint32_t> places{};
};

// A namespace is the only kind of value that a template can modify.
struct Namespace {
  std::vector<std::pair<std::string_view, Value>> attributes;
};

}  // namespace walsh::jinja
