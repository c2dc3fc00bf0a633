#include "walsh/error.h"

#include <utility>

namespace walsh {

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::internal:
      return 1;
    case ErrorCode::usage:
      return 2;
    case ErrorCode::bad_input:
      return 3;
    case ErrorCode::limit:
      return 4;
    case ErrorCode::io:
      return 5;
    case ErrorCode::interrupted:
      return 130;
  }
  return 1;
}

Error::Error(ErrorCode code, std::string where, std::string reason)
    : code_(code), where_(std::move(where)), reason_(std::move(reason)) {
  text_ = where_.empty() ? reason_ : where_ + ": " + reason_;
}

}  // namespace walsh
