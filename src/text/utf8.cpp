#include "text/utf8.h"

#include <algorithm>

#include "base/stop.h"

namespace walsh {
namespace {

// Says how long the sequence is that a lead byte announces, and in which range its second byte lies
// (Unicode 15, table 3-7); size 0 marks a byte that cannot lead.
struct Lead {
  uint32_t size;
  uint8_t low, high;
  char32_t bits;
};

Lead classify(uint8_t byte) {
  if (byte < 0x80) {
    return {1, 0, 0, byte};
  }
  if (byte < 0xC2 || byte > 0xF4) {
    return {0, 0, 0, 0};
  }
  if (byte < 0xE0) {
    return {2, 0x80, 0xBF, byte & 0x1Fu};
  }
  if (byte < 0xF0) {
    const uint8_t low = byte == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = byte == 0xED ? 0x9F : 0xBF;
    return {3, low, high, byte & 0x0Fu};
  }
  const uint8_t low = byte == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = byte == 0xF4 ? 0x8F : 0xBF;
  return {4, low, high, byte & 0x07u};
}

}  // namespace

Utf8Unit decode_utf8(std::string_view text) {
  using Kind = Utf8Unit::Kind;
  Lead lead = classify(static_cast<uint8_t>(text[0]));
  if (lead.size == 0) {
    return {kReplacementCharacter, 1, Kind::invalid};
  }
  char32_t code = lead.bits;
  for (uint32_t i = 1; i < lead.size; ++i) {
    if (i == text.size()) {
      return {kReplacementCharacter, i, Kind::truncated};
    }
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < lead.low || byte > lead.high) {
      return {kReplacementCharacter, i, Kind::invalid};
    }
    lead.low = 0x80;
    lead.high = 0xBF;
    code = (code << 6) | (byte & 0x3Fu);
  }
  return {code, lead.size, Kind::valid};
}

void append_utf8(char32_t code, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  const std::atomic<bool>* stop = stop_flag();
  while (!text.empty()) {
    check_stop(stop);
    const Utf8Unit unit = decode_utf8(text);
    if (unit.kind != Utf8Unit::Kind::valid) {
      return false;
    }
    text.remove_prefix(unit.size);
  }
  return true;
}

std::string to_valid_utf8(std::string_view text) {
  if (is_valid_utf8(text)) {
    return std::string(text);
  }
  std::string out;
  out.reserve(text.size() + 16);
  Utf8Assembler assembler;
  assembler.feed(text, out);
  assembler.finish(out);
  return out;
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

void Utf8Assembler::feed(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined.swap(held_);
    joined.append(bytes);
    bytes = joined;
  }
  const std::atomic<bool>* stop = stop_flag();
  while (!bytes.empty()) {
    check_stop(stop);
    const Utf8Unit unit = decode_utf8(bytes);
    if (unit.kind == Utf8Unit::Kind::truncated) {
      held_.assign(bytes);
      return;
    }
    if (unit.kind == Utf8Unit::Kind::valid) {
      out.append(bytes.substr(0, unit.size));
    } else {
      out.append(kReplacementUtf8);
    }
    bytes.remove_prefix(unit.size);
  }
}

void Utf8Assembler::finish(std::string& out) {
  if (!held_.empty()) {
    out.append(kReplacementUtf8);
    held_.clear();
  }
}

}  // namespace walsh
