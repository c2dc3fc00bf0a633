// Writes a safetensors file: the header goes first, tensor data follow in any order, and commit
// ends it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/atomic_file.h"
#include "io/keyed_hash.h"

namespace walsh {

// Callers use add, then open, then write in any order, then commit. The file is a function of the
// tensors and their data only. Misuse (duplicate names, wrong sizes, a tensor left unwritten)
// throws internal; failures of the disk throw io.
class SafetensorsWriter {
 public:
  // `dtype` is safetensors' name; the outermost dimension comes first. Data are laid out in the
  // order of the calls.
  void add(std::string name, std::string_view dtype, std::vector<int64_t> shape);

  // Returns the size of the complete file, which is known before anything is written.
  uint64_t file_size() const;
  uint64_t data_size() const { return data_size_; }
  const std::vector<std::string>& names() const { return order_; }

  // Creates the file under a temporary name, reserves its space and writes the header.
  void open(const std::string& path);
  // Writes `data` into the tensor, starting `offset` bytes into it.
  void write(std::string_view name, std::span<const std::byte> data, uint64_t offset = 0);
  // Requires every tensor to be written completely, and renames the file to its final name.
  void commit();

 private:
  struct Slot {
    std::string dtype;
    std::vector<int64_t> shape;
    uint64_t offset = 0, bytes = 0, written = 0;
  };
  std::string header() const;

  std::vector<std::string> order_;
  StringMap<Slot> slots_;
  uint64_t data_size_ = 0, data_offset_ = 0;
  std::unique_ptr<AtomicFile> file_;
};

}  // namespace walsh
