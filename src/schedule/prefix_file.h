// Reads and writes the file of a prefix (docs/formats/prefix.md). It has the tokens of a text with
// what a session has saved of it (Session::save), and is tied to a model and to the owner of the
// text. No byte of it is trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "io/checksum.h"
#include "io/sha256.h"

namespace walsh {

// Reads bytes of a file from an offset on; throws io or bad_input if it does not have them.
using ReadAt = FunctionRef<void(uint64_t offset, std::span<std::byte> to)>;

struct PrefixHead {
  Sha256 model{};  // It is PrefixStore::Options::model.
  Sha256 owner{};  // It is the digest of TextRequest::owner.
  std::vector<int32_t> tokens;
  uint64_t saved_bytes = 0;
  Checksum saved_checksum;

  uint64_t saved_offset() const;
  uint64_t file_bytes() const { return saved_offset() + saved_bytes; }
};

// Reads the head of a file of `file_bytes` bytes and checks it. Throws bad_input, without a path,
// for anything that is no whole file of this version.
PrefixHead read_prefix_head(uint64_t file_bytes, ReadAt read);

// Hands out what was saved, piece by piece.
class PrefixReader {
 public:
  PrefixReader(const PrefixHead& head, ReadAt read)
      : read_(read), at_(head.saved_offset()), end_(head.file_bytes()), sum_(head.saved_checksum) {}

  // Fills a part of memory. Throws bad_input if less was saved.
  void operator()(std::span<std::byte> part);
  // Throws bad_input if there is more, or the checksum of all was wrong.
  void finish() const;

 private:
  ReadAt read_;
  uint64_t at_, end_;
  Checksum sum_;
  ChecksumStream found_;
};

// Writes a file that only its owner may read, whole or not at all; fills in the last two fields of
// the head. Throws io.
void write_prefix(const std::string& path, PrefixHead head, std::span<const std::byte> saved);

}  // namespace walsh
