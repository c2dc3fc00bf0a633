// Describes endpoints, and finds that of a request.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/http.h"

namespace walsh {

class Service;
// Endpoints of a model are functions of the service that answers for it.
using Handler = void (Service::*)(const HttpRequest&, const std::shared_ptr<HttpReply>&);

struct Route {
  const char *method, *path;  // a path may end with *
  Handler handler;
  bool open;  // it needs no key
  HttpTurn turn = HttpTurn::handlers;
};

// Replaces the path by that of a route (Service::routes() has the table) where only /v1 or a slash
// at its end differ.
void set_route(HttpRequest& request);
// Returns the route of a request. Throws ApiError 404 or 405.
const Route& route_of(const HttpRequest& request);
// Returns the methods that a path takes, for the field Allow.
std::string methods_of(std::string_view path);
HttpTurn turn_of(const HttpRequest& request);

}  // namespace walsh
