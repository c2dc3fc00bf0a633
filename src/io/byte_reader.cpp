#include "io/byte_reader.h"

#include "io/printable.h"
#include "walsh/error.h"

namespace walsh {

std::string_view ByteReader::string(uint64_t max_bytes, std::string_view what) {
  const uint64_t start = offset_;
  const auto size = read<uint64_t>(what);
  const uint64_t left = remaining();
  if (size > max_bytes || size > left) {
    offset_ = start;
    fail(std::string(what) + " has length " + std::to_string(size) + ", expected at most " +
         std::to_string(size > left ? left : max_bytes) +
         (size > left ? " (the bytes that are left)" : ""));
  }
  const auto bytes = take(size, what);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void ByteReader::fail(const std::string& reason) const {
  throw Error(ErrorCode::bad_input, std::string(where_),
              "at byte " + std::to_string(offset_) + ": " + reason);
}

void ByteReader::fail_overrun(uint64_t size, std::string_view what) const {
  fail("the file ends inside " + printable(what) + " (" + std::to_string(size) + " bytes wanted, " +
       std::to_string(remaining()) + " left)");
}

}  // namespace walsh
