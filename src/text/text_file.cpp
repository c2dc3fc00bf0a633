#include "text/text_file.h"

#include "io/mapped_file.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "walsh/error.h"

namespace walsh {

std::string read_utf8_text(const std::string& path) {
  std::string text = read_text_input(path, kMaxTextBytes);
  check_utf8_text(text, path);
  return text;
}

void check_utf8_text(std::string_view text, const std::string& path) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Unit unit = decode_utf8(text.substr(at));
    if (unit.kind == Utf8Unit::Kind::invalid || unit.code == 0)
      throw Error(ErrorCode::bad_input, path,
                  "is not a text in UTF-8: see byte " + std::to_string(at) +
                      (unit.code == 0 ? ", which is 0" : ""));
    at += unit.size;
  }
}

}  // namespace walsh
