// Any bytes as a walsh file: bad_input, or tensors of every format that can be decoded and repacked
// within the file's arrays. Checksums, which no mutation would meet, are left out for that.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "formats/product.h"
#include "kernels/ops.h"
#include "quantize/walsh_file.h"
#include "walsh/error.h"

namespace {

constexpr int64_t kMaxWeights = 1 << 20;  // decoded and repacked

// A file in memory that is rewritten for every input.
std::string memory_file(const uint8_t* data, size_t size) {
  static const int fd = ::memfd_create("walsh", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, 0) != 0) std::abort();
  if (::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  return "/proc/self/fd/" + std::to_string(fd);
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
  try {
    const auto file = walsh::WalshFile::open(memory_file(data, size));
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
