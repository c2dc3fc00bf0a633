#include "serve/translated_reply.h"

#include <fmt/format.h>

#include <mutex>
#include <random>
#include <string_view>

#include "io/wide_integers.h"

namespace walsh {
namespace {

// Replaces names of fields in a message. Paths start the message or follow a quote; the same word
// elsewhere is not a path.
std::string rename_fields(std::string text, const FieldNames& names) {
  for (const auto& [from, to] : names) {
    for (size_t at = 0; (at = text.find(from, at)) != text.npos;) {
      const bool begins = from.front() == '.' || at == 0 || text[at - 1] == '\'';
      const size_t behind = at + from.size();
      const bool ends = behind == text.size() ||
                        std::string_view("'.[/:").find(text[behind]) != std::string_view::npos;
      if (begins && ends) text.replace(at, from.size(), to);
      at += begins && ends ? to.size() : from.size();
    }
  }
  return text;
}

}  // namespace

ApiError renamed(const ApiError& error, const FieldNames& names) {
  return {error.status(), rename_fields(error.what(), names), rename_fields(error.param(), names),
          error.code()};
}

void TranslatedReply::send(HttpResponse response) {
  const Json body = Json::parse(response.body, nullptr, false);
  if (!body.is_discarded())
    response.body = dump_exact(response.status < 400 ? whole(body) : error(body));
  reply_->send(std::move(response));
}

void TranslatedReply::start_events(HttpResponse response) {
  response.type = stream_type_;
  reply_->start_events(std::move(response));
}

void TranslatedReply::event(std::string text) {
  std::string_view data = text;
  if (!data.starts_with("data: ")) return reply_->event(std::move(text));
  data = data.substr(6, data.find('\n') - 6);
  if (data == "[DONE]") {
    if (!broken_) done();
    return;
  }
  const Json object = Json::parse(data, nullptr, false);
  if (object.is_discarded()) return;
  if (object.contains("error")) {
    broken_ = true;
    broken(object);
  } else {
    chunk(object);
  }
}

void TranslatedReply::emit(const Json& data) {
  reply_->event(fmt::format("event: {}\ndata: {}\n\n",
                            data.at("type").get_ref<const std::string&>(), dump_exact(data)));
}

int64_t count_at(const Json& usage, const char* key) {
  return usage.is_object() && usage.contains(key) && usage[key].is_number()
             ? usage[key].get<int64_t>()
             : 0;
}

Json arguments_object(const std::string& text) {
  try {
    const OrderedJson object =
        parse_exact_json(text, "arguments", {.refuse_duplicate_keys = false});
    if (object.is_object()) return object;
  } catch (const Error&) {  // it was cut off
  }
  return Json::object();
}

std::string new_name(const char* prefix) {
  static std::mutex mutex;
  static std::mt19937_64 random{std::random_device{}()};
  const std::lock_guard lock(mutex);
  return fmt::format("{}{:016x}{:016x}", prefix, random(), random());
}

}  // namespace walsh
