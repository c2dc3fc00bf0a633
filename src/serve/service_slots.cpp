// Serves the places of texts: what is there, and the files that clients make of it. The endpoints
// are llama.cpp's, whose slots they are.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/percent.h"
#include "io/json.h"
#include "serve/fields.h"
#include "serve/ordered_fields.h"
#include "serve/sampling_fields.h"
#include "serve/service.h"

namespace walsh {
namespace {

constexpr const char* kPath = "/slots/";

int64_t place_of(const std::string& path) {
  const std::string number = path.substr(std::string_view(kPath).size());
  const bool digits = !number.empty() && number.size() < 6 &&
                      number.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) throw ApiError(400, "'" + number + "' is not the number of a slot", "id_slot");
  return std::stoll(number);
}

// Returns the error of a file, without its path on the server. Naming what is no such file is the
// client's mistake; a file that cannot be written is not.
ApiError slot_error(const Error& error, const std::string& name, bool saves) {
  if (error.code() != ErrorCode::io && error.code() != ErrorCode::bad_input)
    return api_error(error);
  const std::string what = name + ": " + error.reason();
  return saves ? ApiError(500, what) : ApiError(400, what, "filename");
}

// Runs a task of a request and sends what it returns.
void send_result(const std::shared_ptr<HttpReply>& reply, const std::function<Json()>& task) {
  try {
    reply->send(json_response(task()));
  } catch (const ApiError& e) {
    reply->send(e.response());
  } catch (const Error& e) {
    reply->send(api_error(e).response());
  } catch (const std::exception& e) {
    reply->send(ApiError(500, e.what()).response());
  }
}

// Saves or restores the text of a place.
PlaceFile move_text(Scheduler& scheduler, int64_t place, const std::string& owner,
                    const std::string& name, bool saves) {
  try {
    return saves ? scheduler.save_place(place, owner, name)
                 : scheduler.restore_place(place, owner, name);
  } catch (const Error& e) {
    throw slot_error(e, name, saves);
  }
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

// Others' texts are only counted: whoever has no key sees those of all who have none.
Json Service::describe_slots(const std::string& key) const {
  Json all = Json::array();
  for (const PlaceState& place : scheduler_.places()) {
    const bool runs = place.request != nullptr;
    Json slot = {{"id", all.size()},
                 {"id_task", runs ? Json(place.id) : Json(-1)},
                 {"n_ctx", scheduler_.positions()},
                 {"speculative", model_.drafts() != nullptr},
                 {"is_processing", runs}};
    if (runs && place.owner.starts_with(key)) {
      const int64_t most = place.request->max_tokens;
      slot["params"] = sampling_values(place.request->sampler);
      slot["params"]["n_predict"] = most;
      slot["params"]["n_keep"] = place.request->keep;
      slot["next_token"] = Json::array({{{"has_next_token", true},
                                         {"n_remain", most < 0 ? -1 : most - place.generated},
                                         {"n_decoded", place.generated}}});
    }
    if (!place.tokens.empty() && place.owner.starts_with(key)) {
      slot["n_tokens"] = place.tokens.size();
      slot["prompt"] = model_.tokenizer.decode(place.tokens, true);
    }
    all.push_back(std::move(slot));
  }
  return all;
}

void Service::slots(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  if (!options_.slots) throw ApiError(501, "this server does not show its slots (--no-slots)");
  const std::string key = door_->key_name(request) + " ";
  const bool wants_free = query_value(request.query, "fail_on_no_slot") == "1";
  scheduler_.between_steps([this, reply, key, wants_free] {
    send_result(reply, [&] {
      Json all = describe_slots(key);
      const auto is_free = [](const Json& slot) { return slot["is_processing"] == false; };
      if (wants_free && std::none_of(all.begin(), all.end(), is_free))
        throw ApiError(503, "no slot is free");
      return all;
    });
  });
}

void Service::act_on_slot(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  if (!options_.slots) throw ApiError(501, "this server does not show its slots (--no-slots)");
  const int64_t place = place_of(request.path);
  const std::string action = query_value(request.query, "action");
  if (action != "save" && action != "restore" && action != "erase")
    throw ApiError(400, "'action' must be save, restore or erase", "action");
  const OrderedJson body = request.body.empty() && action == "erase"
                               ? OrderedJson(OrderedJson::object())
                               : parse_ordered_body(request.body);
  const std::string owner = owner_of(request, body);
  std::string name;
  if (action != "erase") {
    const OrderedJson* given = find_value(body, "filename");
    if (given == nullptr || !given->is_string()) refuse_value("filename", "a string");
    name = given->get<std::string>();
  }
  scheduler_.between_steps([this, reply, place, action, owner, name] {
    send_result(reply, [&]() -> Json {
      if (action == "erase")
        return {{"id_slot", place}, {"n_erased", scheduler_.erase_place(place, owner)}};
      const bool saves = action == "save";
      const auto start = std::chrono::steady_clock::now();
      const PlaceFile file = move_text(scheduler_, place, owner, name, saves);
      return {{"id_slot", place},
              {"filename", name},
              {saves ? "n_saved" : "n_restored", file.tokens},
              {saves ? "n_written" : "n_read", file.bytes},
              {"timings", {{saves ? "save_ms" : "restore_ms", milliseconds_since(start)}}}};
    });
  });
}

}  // namespace walsh
