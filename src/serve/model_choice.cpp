#include "serve/model_choice.h"

#include <charconv>
#include <utility>

#include "base/percent.h"
#include "serve/fields.h"

namespace walsh {
namespace {

// Collects fields at the top of an object without keeping the others in memory, and stops as soon
// as nothing more can be of interest.
class ChoiceReader : public nlohmann::json_sax<Json> {
 public:
  explicit ChoiceReader(bool ollama) : ollama_(ollama) {}

  Json model, name, keep_alive;

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    field_ = depth_ > 1            ? nullptr
             : key == "model"      ? &model
             : !ollama_            ? nullptr
             : key == "name"       ? &name
             : key == "keep_alive" ? &keep_alive
                                   : nullptr;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    broken = true;
    return false;
  }

  bool broken = false;

 private:
  // Enters an object or a list, which no field can be: a field that has one gets an object, which
  // is refused later.
  bool open() {
    if (depth_ == 1 && field_ != nullptr) *std::exchange(field_, nullptr) = Json::object();
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }
  template <class Value>
  bool put(Value value) {
    if (depth_ != 1 || field_ == nullptr) return true;
    *std::exchange(field_, nullptr) = std::move(value);
    return ollama_ || model.is_null();
  }

  const bool ollama_;
  Json* field_ = nullptr;  // the next value belongs to it
  int depth_ = 0;
};

constexpr double kMostSeconds = 1e12;  // Sums with the time of day are still dates.

std::string text_of(const Json& value, const char* key) {
  if (value.is_null()) return "";
  if (!value.is_string())
    throw ApiError(400, std::string("'") + key + "' must be the name of a model", key);
  return value.get<std::string>();
}

std::optional<double> keep_of(const Json& value) {
  if (value.is_null()) return std::nullopt;
  std::optional<double> seconds;
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (number < kMostSeconds) seconds = number < 0 ? -1 : number;
  } else if (value.is_string()) {
    seconds = parse_duration(value.get_ref<const std::string&>());
  }
  if (!seconds)
    throw ApiError(400, "'keep_alive' must be a number of seconds or a duration such as 5m",
                   "keep_alive");
  return seconds;
}

}  // namespace

ModelChoice choice_of(const HttpRequest& request) {
  ModelChoice choice;
  if (request.method == "POST") {
    ChoiceReader reader(request.path.starts_with("/api/"));
    Json::sax_parse(request.body, &reader);
    if (reader.broken) parse_ordered_body(request.body);  // it throws what is wrong with the body
    choice.name = text_of(reader.model, "model");
    if (choice.name.empty()) choice.name = text_of(reader.name, "name");
    choice.keep_seconds = keep_of(reader.keep_alive);
  }
  if (choice.name.empty()) choice.name = query_value(request.query, "model");
  return choice;
}

std::optional<double> parse_duration(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"h", 3600}, {"m", 60}, {"s", 1}};
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  double seconds = 0;
  bool plain = false;
  if (text.empty()) return std::nullopt;
  for (bool first = true; !text.empty(); first = false) {
    double number = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc() || plain || number < 0) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    double factor = 0;
    for (const auto& [unit, size] : kUnits) {
      if (!text.starts_with(unit)) continue;
      factor = size;
      text.remove_prefix(unit.size());
      break;
    }
    if (factor == 0 && !(first && text.empty())) return std::nullopt;
    plain = factor == 0;
    seconds += number * (plain ? 1 : factor);
  }
  if (!(seconds < kMostSeconds)) return std::nullopt;
  return negative && seconds > 0 ? -1 : seconds;
}

}  // namespace walsh
