// Takes any bytes as the journal of an interrupted run. Nothing of it may be taken but records
// whose checksum is right, and a file that is no journal must stay as it is.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "quantize/pipeline/resume.h"

namespace {

// A record's header has kHeader bytes. Its checksum stands at kSum and covers the bytes before it
// and the content.
constexpr size_t kHeader = 56, kSum = 40;

std::string output_path() {
  static const std::string path = [] {
    const char* folder = std::getenv("TMPDIR");
    return std::string(folder != nullptr ? folder : "/tmp") + "/walsh-fuzz-" +
           std::to_string(::getpid());
  }();
  return path;
}

// Gives the first record its checksum; mutations would never find it.
std::string sealed(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  uint64_t bytes = 0;
  if (size < kHeader) return file;
  std::memcpy(&bytes, file.data() + 32, 8);
  if (bytes > size - kHeader) return file;
  walsh::ChecksumStream sum;
  const auto all = std::as_bytes(std::span(file));
  sum.update(all.first(kSum));
  sum.update(all.subspan(kHeader, bytes));
  const walsh::Checksum digest = sum.digest();
  std::memcpy(file.data() + kSum, &digest.low, 8);
  std::memcpy(file.data() + kSum + 8, &digest.high, 8);
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input = sealed(data, size), path = output_path() + walsh::kResumeSuffix;
  std::ofstream(path, std::ios::binary) << input;
  int notes = 0;
  bool usable = false;
  {
    walsh::ResumeFile file(output_path(), [&](const std::string& note) {
      if (note.find(path) != 0) std::abort();
      ++notes;
    });
    usable = file.usable();
    uint64_t key[2] = {1, 2}, bytes = 7;
    if (size >= kHeader) {
      std::memcpy(key, input.data() + 8, sizeof(key));
      std::memcpy(&bytes, input.data() + 32, sizeof(bytes));
    }
    const auto record = file.find({key[0], key[1]}, bytes);
    if (record && (record->content.size() != bytes || bytes > size)) std::abort();
    const std::span<const std::byte> array = std::as_bytes(std::span(key));
    file.add({3, 4}, 0.5, std::span(&array, 1));
    if (usable && !file.find({3, 4}, sizeof(key))) std::abort();
    if (usable) file.remove();
  }
  if (notes != (usable ? 0 : 1)) std::abort();
  if (!usable) {
    std::ifstream in(path, std::ios::binary);
    if (std::string(std::istreambuf_iterator<char>(in), {}) != input) std::abort();
    ::unlink(path.c_str());
  } else if (::access(path.c_str(), F_OK) == 0) {
    std::abort();
  }
  return 0;
}
