#include "serve/routes.h"

#include <algorithm>

#include "serve/api_error.h"
#include "serve/image_parts.h"
#include "serve/service.h"

namespace walsh {
namespace {

bool fits(std::string_view route, std::string_view path) {
  if (!route.ends_with('*')) return route == path;
  return path.starts_with(route.substr(0, route.size() - 1)) && path.size() >= route.size();
}

}  // namespace

// Accepts paths without /v1 and with a trailing slash, which misconfigured clients send.
void set_route(HttpRequest& request) {
  std::string& path = request.path;
  while (path.size() > 1 && path.ends_with('/'))
    path.pop_back();
  const auto known = [](const std::string& name) {
    return std::any_of(Service::routes().begin(), Service::routes().end(),
                       [&](const Route& route) { return fits(route.path, name); });
  };
  if (!known(path) && known("/v1" + path)) path = "/v1" + path;
}

std::string methods_of(std::string_view path) {
  std::string methods;
  for (const Route& route : Service::routes())
    if (fits(route.path, path))
      methods += (methods.empty() ? "" : ", ") +
                 std::string(std::string_view(route.method) == "GET" ? "GET, HEAD" : route.method);
  return methods;
}

HttpTurn turn_of(const HttpRequest& request) {
  // It takes more than a few milliseconds to parse bodies of this size.
  constexpr size_t kLongBody = size_t{128} << 10;
  const bool is_long = request.body.size() > kLongBody || may_have_images(request.body);
  for (const Route& route : Service::routes())
    if (request.path == route.path && (route.turn != HttpTurn::handlers || !is_long))
      return route.turn;
  return is_long ? HttpTurn::long_bodies : HttpTurn::handlers;
}

const Route& route_of(const HttpRequest& request) {
  bool other_method = false;
  for (const Route& route : Service::routes()) {
    if (!fits(route.path, request.path)) continue;
    if (request.method == route.method || (request.method == "HEAD" && route.method[0] == 'G'))
      return route;
    other_method = true;
  }
  if (other_method) throw ApiError(405, request.path + " does not take " + request.method);
  throw ApiError(404, "there is no " + request.path);
}

}  // namespace walsh
