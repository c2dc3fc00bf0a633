#include "schedule/prefix_file.h"

#include <sys/stat.h>

#include <cstddef>
#include <cstring>

#include "io/atomic_file.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr char kMagic[8] = {'w', 'a', 'l', 's', 'h', 'k', 'v', '\n'};
constexpr uint64_t kVersion = 1;
constexpr mode_t kOwnerOnly = 0600;
constexpr uint64_t kMostTokens = uint64_t{1} << 27;

// Holds the numbers in front of the tokens, as they lie in the file.
struct Fields {
  char magic[8];
  uint64_t version;
  Sha256 model, owner;
  uint64_t tokens, saved_bytes;
  uint64_t saved_checksum[2];
  uint64_t head_checksum[2];  // It covers these fields, with zeros here, and the tokens.
};
static_assert(sizeof(Fields) == 128);
constexpr size_t kChecksumOffset = offsetof(Fields, head_checksum);

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::bad_input, "prefix", why);
}

Checksum head_checksum(std::span<const std::byte> head) {
  return checksum_without(head, kChecksumOffset, sizeof(Fields::head_checksum));
}

}  // namespace

uint64_t PrefixHead::saved_offset() const {
  return sizeof(Fields) + tokens.size() * sizeof(int32_t);
}

PrefixHead read_prefix_head(uint64_t file_bytes, ReadAt read) {
  Fields fields;
  if (file_bytes < sizeof(fields)) refuse("the file is cut off");
  read(0, std::as_writable_bytes(std::span(&fields, 1)));
  if (std::memcmp(fields.magic, kMagic, sizeof(kMagic)) != 0) refuse("the file is no prefix");
  if (fields.version != kVersion) refuse("another version has written the file");
  const uint64_t rest = file_bytes - sizeof(fields);
  if (fields.tokens > kMostTokens || fields.tokens > rest / sizeof(int32_t) ||
      fields.saved_bytes != rest - fields.tokens * sizeof(int32_t))
    refuse("the length of the file is wrong");
  std::vector<std::byte> head(sizeof(fields) + fields.tokens * sizeof(int32_t));
  read(0, head);
  if (head_checksum(head) != Checksum{fields.head_checksum[0], fields.head_checksum[1]})
    refuse("the checksum of the head is wrong");
  PrefixHead result;
  result.model = fields.model;
  result.owner = fields.owner;
  result.tokens.resize(fields.tokens);
  if (!result.tokens.empty())
    std::memcpy(result.tokens.data(), head.data() + sizeof(fields), head.size() - sizeof(fields));
  result.saved_bytes = fields.saved_bytes;
  result.saved_checksum = {fields.saved_checksum[0], fields.saved_checksum[1]};
  return result;
}

void PrefixReader::operator()(std::span<std::byte> part) {
  if (part.size() > end_ - at_) refuse("less was saved than a text of this length has");
  read_(at_, part);
  found_.update(part);
  at_ += part.size();
}

void PrefixReader::finish() const {
  if (at_ != end_) refuse("more was saved than a text of this length has");
  if (found_.digest() != sum_) refuse("the checksum is wrong");
}

void write_prefix(const std::string& path, PrefixHead head, std::span<const std::byte> saved) {
  const Checksum sum = checksum(saved);
  Fields fields{};
  std::memcpy(fields.magic, kMagic, sizeof(kMagic));
  fields.version = kVersion;
  fields.model = head.model;
  fields.owner = head.owner;
  fields.tokens = head.tokens.size();
  fields.saved_bytes = head.saved_bytes = saved.size();
  fields.saved_checksum[0] = sum.low;
  fields.saved_checksum[1] = sum.high;
  std::vector<std::byte> bytes(sizeof(fields) + head.tokens.size() * sizeof(int32_t));
  std::memcpy(bytes.data(), &fields, sizeof(fields));
  if (!head.tokens.empty())
    std::memcpy(bytes.data() + sizeof(fields), head.tokens.data(), bytes.size() - sizeof(fields));
  const Checksum whole = head_checksum(bytes);
  const uint64_t halves[2] = {whole.low, whole.high};
  std::memcpy(bytes.data() + kChecksumOffset, halves, sizeof(halves));
  AtomicFile file(path, head.file_bytes());
  ::chmod(file.temporary_path().c_str(), kOwnerOnly);
  file.append(bytes);
  file.append(saved);
  file.commit();
}

}  // namespace walsh
