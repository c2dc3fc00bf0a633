// Modifies walsh files for tests and updates the checksum of the header, or writes them as older
// versions did.
#pragma once

#include <cstring>
#include <span>
#include <string>

#include "io/checksum.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "walsh/error.h"
#include "weights/walsh_file.h"

namespace walsh {

// Gives a changed file the checksum of its header; one that cannot be parsed stays as it is.
inline void reseal(std::string& file) {
  const auto bytes = std::as_bytes(std::span(file));
  GgufContent content;
  try {
    content = parse_gguf(bytes, "");
  } catch (const Error&) {
    return;
  }
  const GgufEntry* entry = content.find_entry(keys::kHeader);
  if (entry == nullptr || entry->value.raw().size() != sizeof(Checksum)) return;
  const auto header = bytes.first(std::min<size_t>(content.data_offset, bytes.size()));
  const Checksum sum = checksum_without(header, entry->offset, sizeof(sum));
  std::memcpy(file.data() + entry->offset, &sum.low, sizeof(sum.low));
  std::memcpy(file.data() + entry->offset + sizeof(sum.low), &sum.high, sizeof(sum.high));
}

// Writes the content of a walsh file anew as one of `version`, without a checksum of the header.
inline void write_unsealed(const std::string& file, const std::string& path, uint32_t version) {
  const auto bytes = std::as_bytes(std::span(file));
  const GgufContent content = parse_gguf(bytes, "");
  GgufWriter writer;
  for (const GgufEntry& entry : content.metadata) {
    if (entry.key == kGgufAlignmentKey || entry.key == keys::kHeader) continue;
    const bool is_version = entry.key == keys::kVersion;
    writer.set(entry.key, is_version ? GgufValue::number(version) : entry.value);
  }
  for (const GgufTensor& tensor : content.tensors)
    writer.add_tensor(tensor.name, static_cast<GgmlType>(tensor.type), tensor.dims);
  writer.open(path);
  for (const GgufTensor& tensor : content.tensors)
    writer.write(tensor.name, bytes.subspan(tensor.offset, tensor.bytes));
  writer.commit();
}

}  // namespace walsh
