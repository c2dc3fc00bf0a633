#include "text/jinja/runtime.h"

#include <algorithm>

#include "text/jinja/operations.h"
#include "text/utf8.h"

namespace walsh::jinja {
namespace {

constexpr size_t kBlockBytes = 16384;
constexpr size_t kIndexed = 16;  // a dict with at least this many entries has an index

int depth_of(const Value& value) {
  if (const Sequence* sequence = value.sequence()) return sequence->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  return 0;
}

}  // namespace

std::string Runtime::where() const {
  return std::string(name_) + ", line " + std::to_string(line);
}

void Runtime::fail(const std::string& reason) const {
  throw Error(ErrorCode::bad_input, where(), reason);
}

void Runtime::fail_limit(const std::string& reason) const {
  throw Error(ErrorCode::limit, where(), reason);
}

void Runtime::fail_memory() const {
  fail_limit(std::string("takes more than ") + std::to_string(limits_.memory_bytes) +
             " bytes of memory");
}

std::string_view Runtime::store(std::string_view bytes) {
  if (bytes.empty()) return {};
  charge(bytes.size());
  if (bytes.size() > free_bytes_) {
    const size_t size = std::max(bytes.size(), kBlockBytes);
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(size));
    // A large text gets a block of its own; the current block stays in use.
    if (bytes.size() >= kBlockBytes) {
      std::copy(bytes.begin(), bytes.end(), blocks_.back().get());
      return {blocks_.back().get(), bytes.size()};
    }
    free_ = blocks_.back().get();
    free_bytes_ = size;
  }
  char* const place = free_;
  std::copy(bytes.begin(), bytes.end(), place);
  free_ += bytes.size();
  free_bytes_ -= bytes.size();
  return {place, bytes.size()};
}

Value Runtime::text(std::string_view bytes, bool markup) {
  return Text{store(bytes), markup};
}

Value Runtime::sequence(Sequence::Kind kind, std::vector<Value> items) {
  charge(sizeof(Sequence) + items.size() * sizeof(Value));
  int depth = 0;
  for (const Value& item : items)
    depth = std::max(depth, depth_of(item));
  if (depth >= kMaxContainerDepth) fail_limit("containers are nested too deeply");
  sequences_.push_back({kind, depth + 1, std::move(items)});
  return &sequences_.back();
}

Dict* Runtime::dict() {
  charge(sizeof(Dict));
  dicts_.emplace_back();
  return &dicts_.back();
}

const Value* Runtime::find(const Dict& dict, const Value& key) {
  const uint64_t code = hash(*this, key);
  const auto place = [&]() -> const std::pair<Value, Value>* {
    if (dict.places.empty()) {
      for (const auto& entry : dict.entries) {
        if (equal(*this, entry.first, key)) return &entry;
      }
      return nullptr;
    }
    const auto [first, last] = dict.places.equal_range(code);
    for (auto at = first; at != last; ++at) {
      step();
      if (equal(*this, dict.entries[at->second].first, key)) return &dict.entries[at->second];
    }
    return nullptr;
  }();
  return place == nullptr ? nullptr : &place->second;
}

const Value* Runtime::find(const Dict& dict, std::string_view key) {
  return find(dict, Value(Text{key}));
}

void Runtime::put(Dict& dict, const Value& key, const Value& value) {
  const int depth = std::max(depth_of(key), depth_of(value));
  if (depth >= kMaxContainerDepth) fail_limit("containers are nested too deeply");
  dict.depth = std::max(dict.depth, depth + 1);
  if (const Value* found = find(dict, key)) {
    const_cast<Value&>(*found) = value;  // it is an entry of `dict`, which we may change
    return;
  }
  charge(2 * sizeof(Value) + 48);
  dict.entries.emplace_back(key, value);
  if (dict.entries.size() == kIndexed) {
    for (uint32_t i = 0; i < kIndexed; ++i) {
      dict.places.emplace(hash(*this, dict.entries[i].first), i);
    }
  } else if (dict.entries.size() > kIndexed) {
    dict.places.emplace(hash(*this, key), static_cast<uint32_t>(dict.entries.size() - 1));
  }
}

Value Runtime::name_space() {
  charge(sizeof(Namespace));
  namespaces_.emplace_back();
  return &namespaces_.back();
}

Value Runtime::callable(Callable callable) {
  charge(sizeof(Callable));
  callables_.push_back(callable);
  return &callables_.back();
}

Value Runtime::undefined(const std::string& why) {
  return Undefined{store(why)};
}

void Builder::reserve(size_t bytes) {
  if (bytes > runtime_.limits_.text_bytes - out_.size()) {
    runtime_.fail_limit(std::string("makes a text of more than ") +
                        std::to_string(runtime_.limits_.text_bytes) + " bytes");
  }
  if (bytes >= 64) runtime_.pass(bytes);
}

void Builder::append_code(char32_t code) {
  reserve(4);
  append_utf8(code, out_);
}

std::vector<const Value*> bind(const Runtime& runtime, std::string_view function,
                               const Arguments& arguments,
                               std::initializer_list<std::string_view> names) {
  std::vector<const Value*> bound(names.size(), nullptr);
  if (arguments.positional.size() > names.size()) {
    runtime.fail(std::string(function) + "() takes at most " + std::to_string(names.size()) +
                 " arguments, " + std::to_string(arguments.positional.size()) + " are given");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(names.begin(), names.end(), name);
    if (place == names.end() || bound[static_cast<size_t>(place - names.begin())] != nullptr) {
      runtime.fail(std::string(function) + "() got " +
                   (place == names.end() ? "an unexpected argument '" : "twice the argument '") +
                   std::string(name) + "'");
    }
    bound[static_cast<size_t>(place - names.begin())] = &value;
  }
  return bound;
}

}  // namespace walsh::jinja
