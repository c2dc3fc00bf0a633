#include "io/json.h"

#include <algorithm>
#include <new>
#include <type_traits>
#include <unordered_map>

#include "io/printable.h"
#include "io/wide_integers.h"

namespace walsh {
namespace {

constexpr size_t kMaxMessageBytes = 200;

// Returns the part of an nlohmann message that says what is wrong, after "[json...] " and "column
// N: ".
std::string reason_of(std::string_view message) {
  if (const size_t end = message.find("] "); end != message.npos) message.remove_prefix(end + 2);
  if (const size_t column = message.find(", column "); column < 60) {
    if (const size_t end = message.find(": ", column); end != message.npos) {
      message.remove_prefix(end + 2);
    }
  }
  return printable(message, kMaxMessageBytes);
}

// Empties a document whose depth the limits bound. The destructor of a container with members
// allocates, which would end the process if memory has run out.
template <typename Value>
void empty(Value& value) noexcept {
  if (value.is_array()) {
    auto& array = value.template get_ref<typename Value::array_t&>();
    for (Value& element : array)
      empty(element);
    array.clear();
  } else if (value.is_object()) {
    auto& members = value.template get_ref<typename Value::object_t&>();
    for (auto& [key, member] : members)
      empty(member);
    members.clear();
  }
}

// Builds the document itself instead of using nlohmann's DOM parser, to bound the depth and to
// notice duplicate keys.
template <typename Value>
class Builder final : public nlohmann::json_sax<Value> {
 public:
  // If `exact`, integers of more than 64 bits are kept (io/wide_integers.h).
  Builder(std::string_view text, std::string_view where, const JsonLimits& limits, bool exact)
      : text_(text), where_(where), limits_(limits), exact_(exact) {}
  // Leaves a document alone that was taken out of the builder.
  ~Builder() override { empty(root_); }

  Value take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string& text) override {
    const bool whole = text.find_first_not_of("-0123456789") == text.npos;
    if (!whole || !exact_) return add(value);
    return add(Value::binary({text.begin(), text.end()}));
  }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(typename Value::binary_t&) override {
    fail("binary value");
    return false;
  }
  bool start_object(size_t) override {
    keys_.emplace_back();
    return open(Value::object());
  }
  bool start_array(size_t) override { return open(Value::array()); }
  bool end_object() override {
    keys_.pop_back();
    return close();
  }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    auto& members = open_.back()->template get_ref<typename Value::object_t&>();
    bool inserted = false;
    if constexpr (std::is_same_v<Value, OrderedJson>) {
      const size_t place = find_key(members, name);
      inserted = place == members.size();
      if (inserted) members.push_back({name, nullptr});
      member_ = &(members.begin() + static_cast<ptrdiff_t>(place))->second;
    } else {
      const auto [place, is_new] = members.try_emplace(name, nullptr);
      inserted = is_new;
      member_ = &place->second;
    }
    if (!inserted && limits_.refuse_duplicate_keys)
      fail("duplicate key \"" + printable(name) + "\"");
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& e) override {
    const std::string_view before = text_.substr(0, std::min(position, text_.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t start = before.rfind('\n') + 1;  // without a line feed npos + 1 gives 0
    fail("not valid JSON at line " + std::to_string(line) + ", column " +
         std::to_string(std::max<size_t>(before.size() - start, 1)) + ": " + reason_of(e.what()));
    return false;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(ErrorCode::bad_input, std::string(where_), reason);
  }

  // Returns the index of a key in the open object, whose members are a list, or the list's size if
  // the key is new. Objects with many keys have an index beside the list.
  template <typename Members>
  size_t find_key(const Members& members, const std::string& name) {
    constexpr size_t kFew = 16;
    if (members.size() < kFew) {
      const auto same = [&](const auto& member) { return member.first == name; };
      return static_cast<size_t>(std::find_if(members.begin(), members.end(), same) -
                                 members.begin());
    }
    auto& keys = keys_.back();
    if (keys.empty())
      for (const auto& member : members)
        keys.try_emplace(member.first, keys.size());
    return keys.try_emplace(name, members.size()).first->second;
  }

  // Stores a value under the last key, or at the end of the enclosing array.
  Value* place(Value value) {
    if (limits_.values != nullptr && --*limits_.values < 0) fail("has too many values");
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& array = open_.back()->template get_ref<typename Value::array_t&>();
      array.push_back(std::move(value));
      return &array.back();
    }
    *member_ = std::move(value);
    return member_;
  }

  bool add(Value value) {
    place(std::move(value));
    return true;
  }

  bool open(Value value) {
    if (open_.size() >= static_cast<size_t>(limits_.max_depth)) {
      fail("nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    }
    open_.push_back(place(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_, where_;
  JsonLimits limits_;
  const bool exact_;
  Value root_;
  // The pointers stay valid, because a container does not grow while one of its values is open.
  std::vector<Value*> open_;
  std::vector<std::unordered_map<std::string, size_t>> keys_;  // each belongs to an open object
  Value* member_ = nullptr;
};

template <typename Value>
Value parse(std::string_view text, std::string_view where, const JsonLimits& limits,
            bool exact = false) {
  try {
    Builder<Value> builder(text, where, limits, exact);
    Value::sax_parse(text.begin(), text.end(), &builder);
    return builder.take();
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorCode::bad_input, std::string(where), reason_of(e.what()));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::limit, std::string(where), "not enough memory to parse this JSON text");
  }
}

[[noreturn]] void refuse(const Json& value, const char* key, std::string_view where,
                         const std::string& expected) {
  throw Error(
      ErrorCode::bad_input, std::string(where),
      "key \"" + std::string(key) + "\" is " + describe_json(value) + ", expected " + expected);
}

// Returns nullptr when the key is absent or null.
const Json* find_value(const Json& object, const char* key, std::string_view where) {
  if (!object.is_object()) {
    throw Error(
        ErrorCode::bad_input, std::string(where),
        describe_json(object) + " where an object with the key \"" + key + "\" is expected");
  }
  const auto place = object.find(key);
  return place == object.end() || place->is_null() ? nullptr : &*place;
}

template <typename T>
T require(T value, const char* key, std::string_view where) {
  if (!value) {
    throw Error(ErrorCode::bad_input, std::string(where),
                "key \"" + std::string(key) + "\" is missing");
  }
  return value;
}

}  // namespace

Json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  return parse<Json>(text, where, limits);
}

OrderedJson parse_ordered_json(std::string_view text, std::string_view where,
                               const JsonLimits& limits) {
  return parse<OrderedJson>(text, where, limits);
}

OrderedJson parse_exact_json(std::string_view text, std::string_view where,
                             const JsonLimits& limits) {
  return parse<OrderedJson>(text, where, limits, true);
}

std::string describe_json(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "the integer " + value.dump();
    case Json::value_t::number_float:
      return "the number " + value.dump();
    case Json::value_t::string:
      return "the string \"" + printable(value.get_ref<const std::string&>(), 48) + "\"";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::binary:
      return "an integer of " + std::to_string(value.get_binary().size()) + " digits";
    default:
      return "an unknown value";
  }
}

std::optional<int64_t> find_int(const Json& object, const char* key, std::string_view where,
                                int64_t min, int64_t max) {
  const Json* value = find_value(object, key, where);
  if (value == nullptr) return std::nullopt;
  const bool fits =
      value->is_number_integer() &&
      (!value->is_number_unsigned() ||
       value->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits || value->get<int64_t>() < min || value->get<int64_t>() > max) {
    refuse(*value, key, where,
           "an integer from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return value->get<int64_t>();
}

int64_t get_int(const Json& object, const char* key, std::string_view where, int64_t min,
                int64_t max) {
  return *require(find_int(object, key, where, min, max), key, where);
}

std::optional<double> find_number(const Json& object, const char* key, std::string_view where,
                                  double min, double max) {
  const Json* value = find_value(object, key, where);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(*value, key, where, "a number");
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) {
    refuse(*value, key, where, "a number from " + Json(min).dump() + " to " + Json(max).dump());
  }
  return number;
}

double get_number(const Json& object, const char* key, std::string_view where, double min,
                  double max) {
  return *require(find_number(object, key, where, min, max), key, where);
}

std::optional<bool> find_bool(const Json& object, const char* key, std::string_view where) {
  const Json* value = find_value(object, key, where);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(*value, key, where, "true or false");
  return value->get<bool>();
}

std::optional<std::vector<int32_t>> find_ids(const Json& object, const char* key,
                                             std::string_view where) {
  const Json* value = find_value(object, key, where);
  if (value == nullptr) return std::nullopt;
  const auto fits = [](const Json& id) {
    if (!id.is_number_integer()) return false;
    if (id.is_number_unsigned()) return id.get<uint64_t>() <= uint64_t{INT32_MAX};
    return id.get<int64_t>() >= INT32_MIN && id.get<int64_t>() <= INT32_MAX;
  };
  std::vector<int32_t> ids;
  for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
    if (!fits(id)) refuse(id, key, where, "an id or a list of ids");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

bool get_bool(const Json& object, const char* key, std::string_view where) {
  return *require(find_bool(object, key, where), key, where);
}

std::optional<std::string> find_string(const Json& object, const char* key,
                                       std::string_view where) {
  const Json* value = find_value(object, key, where);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(*value, key, where, "a string");
  return value->get<std::string>();
}

std::string get_string(const Json& object, const char* key, std::string_view where) {
  return *require(find_string(object, key, where), key, where);
}

const Json* find_object(const Json& object, const char* key, std::string_view where) {
  const Json* value = find_value(object, key, where);
  if (value != nullptr && !value->is_object()) refuse(*value, key, where, "an object");
  return value;
}

const Json& get_object(const Json& object, const char* key, std::string_view where) {
  return *require(find_object(object, key, where), key, where);
}

const Json* find_array(const Json& object, const char* key, std::string_view where) {
  const Json* value = find_value(object, key, where);
  if (value != nullptr && !value->is_array()) refuse(*value, key, where, "an array");
  return value;
}

const Json& get_array(const Json& object, const char* key, std::string_view where) {
  return *require(find_array(object, key, where), key, where);
}

}  // namespace walsh
