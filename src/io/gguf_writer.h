// Writes GGUF v3: the header goes first and tensor data follow in any order; late metadata are
// patched in before the commit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/atomic_file.h"
#include "io/gguf_types.h"
#include "io/keyed_hash.h"

namespace walsh {

// Callers use set and add_tensor, then open, then write (in any order, on any thread) and patch,
// then commit. The file is a function of the metadata, the tensors and their data only. Misuse
// (duplicate names, wrong sizes, a tensor left unwritten, a wrong order of calls) throws internal;
// failures of the disk throw io.
class GgufWriter {
 public:
  explicit GgufWriter(uint32_t alignment = 64);

  // Adds a metadata value; the order of the calls is the order in the file.
  void set(std::string key, GgufValue value);
  // Adds a tensor, whose innermost dimension comes first in `dims`. Data are laid out in the order
  // of the calls.
  void add_tensor(std::string name, GgmlType type, std::vector<uint64_t> dims);

  // Returns the size of the complete file, which is known before anything is written.
  uint64_t file_size() const;
  // Returns the tensors with the offsets that they have (after open) or will have.
  std::vector<GgufTensor> layout() const;

  // Creates the file under a temporary name, reserves its space and writes the header. Nothing can
  // be added after it.
  void open(const std::string& path);
  // Writes `data` into the tensor, starting `offset` bytes into it. Thread-safe.
  void write(std::string_view name, std::span<const std::byte> data, uint64_t offset = 0);
  // Replaces a number or an array of numbers by one of the same type and size.
  void patch(std::string_view key, const GgufValue& value);
  // Sets `key`, an array of two u64, to the checksum (low half first) of all bytes in front of the
  // tensor data as if the array's own 16 bytes were zero. Nothing can be patched after it.
  void seal(std::string_view key);
  // Requires every tensor to be written completely, and renames the file to its final name.
  void commit();

 private:
  struct Slot {
    GgufTensor tensor;  // its offset is relative to the data until open()
    uint64_t written = 0;
  };
  // Returns everything in front of the padding; sets the entries' offsets.
  std::string header();
  uint64_t header_size() const;

  uint32_t alignment_;
  std::vector<GgufEntry> metadata_;
  std::vector<Slot> slots_;
  StringMap<size_t> keys_, names_;
  uint64_t data_size_ = 0, data_offset_ = 0;
  std::unique_ptr<AtomicFile> file_;
  bool sealed_ = false;
  std::mutex mutex_;
};

}  // namespace walsh
