#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace walsh {
namespace {

constexpr char32_t kCharacters = 0x100 + 68;  // the largest character used is one less

constexpr bool is_printable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Tables {
  std::array<char32_t, 256> character{};
  std::array<int16_t, kCharacters> byte{};  // -1 means that the character stands for no byte

  constexpr Tables() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      character[b] = is_printable(b) ? b : next++;
      byte[character[b]] = static_cast<int16_t>(b);
    }
  }
};

constexpr Tables kTables;

}  // namespace

char32_t byte_to_character(uint8_t byte) {
  return kTables.character[byte];
}

void append_byte_level(std::string_view text, std::string& out) {
  for (const char c : text) {
    append_utf8(kTables.character[static_cast<uint8_t>(c)], out);
  }
}

std::optional<std::string> byte_level_to_bytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  while (!token.empty()) {
    const Utf8Unit unit = decode_utf8(token);
    if (unit.code >= kCharacters || kTables.byte[unit.code] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kTables.byte[unit.code]));
    token.remove_prefix(unit.size);
  }
  return bytes;
}

}  // namespace walsh
