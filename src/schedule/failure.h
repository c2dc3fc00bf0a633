// Turns any exception of a request's work into the Error that the request receives.
#pragma once

#include <exception>
#include <new>
#include <optional>

#include "walsh/error.h"

namespace walsh {

// Runs `body`; returns the error if it throws anything.
template <class Body>
std::optional<Error> failure_of(const Body& body) {
  try {
    body();
    return std::nullopt;
  } catch (const Error& e) {
    return e;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::limit, "memory", "there is none left for this text");
  } catch (const std::exception& e) {
    return Error(ErrorCode::internal, "request", e.what());
  } catch (...) {
    return Error(ErrorCode::internal, "request", "an exception of an unknown type");
  }
}

}  // namespace walsh
