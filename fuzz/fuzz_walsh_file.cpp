// Takes any bytes as a walsh file. They must give bad_input, or tensors of every format that can be
// decoded and repacked within the file's arrays. Checksums, which no mutation would meet, are left
// out or made right.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "codec/product/product.h"
#include "kernels/ops.h"
#include "walsh/error.h"
#include "weights/walsh_file.h"

namespace {

constexpr int64_t kMaxWeights = 1 << 20;  // this many are decoded and repacked

// Holds a file in memory that is rewritten for every input.
std::string memory_file(const uint8_t* data, size_t size) {
  static const int fd = ::memfd_create("walsh", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, 0) != 0) std::abort();
  if (::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  return "/proc/self/fd/" + std::to_string(fd);
}

// Gives the input the checksum of its header, so that what lies behind the check is reached.
std::vector<uint8_t> sealed(const uint8_t* data, size_t size) {
  std::vector<uint8_t> file(data, data + size);
  const auto bytes = std::as_bytes(std::span(file));
  try {
    const walsh::GgufContent content = walsh::parse_gguf(bytes, "fuzz");
    const walsh::GgufEntry* entry = content.find_entry(walsh::keys::kHeader);
    if (entry == nullptr || entry->value.raw().size() != 16) return file;
    const auto header = bytes.first(std::min<size_t>(content.data_offset, size));
    const walsh::Checksum sum = walsh::checksum_without(header, entry->offset, 16);
    std::memcpy(file.data() + entry->offset, &sum.low, 8);
    std::memcpy(file.data() + entry->offset + 8, &sum.high, 8);
  } catch (const walsh::Error&) {
  }
  return file;
}

// Random orthogonal matrices take long to make.
bool is_slow(const walsh::StoredTensor& stored) {
  for (const walsh::Rotation& rotation : stored.rotation)
    if (rotation.kind == walsh::RotationKind::qr && rotation.block > 64) return true;
  return stored.rows > kMaxWeights / stored.cols;
}

void read_tensor(const walsh::StoredTensor& stored) {
  walsh::Tensor tensor;
  tensor.format = stored.format;
  tensor.rows = stored.rows;
  tensor.cols = stored.cols;
  tensor.rotation[0] = stored.rotation[0];
  tensor.rotation[1] = stored.rotation[1];
  walsh::bind_arrays(tensor, stored.arrays);
  const walsh::ProductCode& product = tensor.format->product;
  if (product.own_codebook) walsh::check_codebook(product, walsh::product_codebook(tensor));
  if (is_slow(stored)) return;
  std::vector<float> values(static_cast<size_t>(tensor.rows * tensor.cols));
  walsh::decode_rows(tensor, 0, tensor.rows, values.data());
  for (int pass = 0; pass < tensor.format->passes; ++pass)
    if (walsh::pack_panels(tensor, pass).rows != tensor.rows) std::abort();
}

void expect_bad_input(const walsh::Error& e) {
  if (e.code() != walsh::ErrorCode::bad_input) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> input = sealed(data, size);
  try {
    const auto file = walsh::WalshFile::open(memory_file(input.data(), input.size()));
    for (const std::string& note : file->notes())
      if (note.empty()) std::abort();
    for (const walsh::StoredTensor& stored : file->tensors()) {
      try {
        read_tensor(stored);
        file->load(stored.name);
      } catch (const walsh::Error& e) {
        expect_bad_input(e);
      }
      file->column_scales(stored.name);
      file->release(stored.name);
    }
  } catch (const walsh::Error& e) {
    expect_bad_input(e);
  }
  return 0;
}
