// Takes arbitrary bytes as a GGUF model of another program. They must give bad_input, or a
// checkpoint whose config and tensors are read or refused with walsh::Error.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "import/gguf_checkpoint.h"
#include "text/tokenizer.h"
#include "walsh/error.h"
#include "weights/checkpoint_source.h"

namespace {

// Holds a file in memory that is rewritten for every input.
std::string memory_file(const uint8_t* data, size_t size) {
  static const int fd = ::memfd_create("walsh", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, 0) != 0) std::abort();
  if (::pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  return "/proc/self/fd/" + std::to_string(fd);
}

void read_tensors(walsh::CheckpointSource& source) {
  for (const std::string& name : source.names()) {
    try {
      const walsh::Tensor tensor = source.load(name);
      std::vector<float> row(static_cast<size_t>(tensor.cols));
      decode_rows(tensor, tensor.rows - 1, tensor.rows, row.data());
    } catch (const walsh::Error& e) {
      if (e.code() != walsh::ErrorCode::bad_input) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string path = memory_file(data, size);
  try {
    const walsh::Checkpoint checkpoint = walsh::open_gguf_checkpoint(path);
    if (!checkpoint.tokenizer_json().empty()) {
      walsh::Tokenizer::from_json(checkpoint.tokenizer_json(), checkpoint.tokenizer_config_json(),
                                  "fuzz");
    }
    // This reads every tensor as stored, then those of the model that the metadata describe.
    walsh::CheckpointSource kept(walsh::open_gguf_checkpoint(path), {}, {}, walsh::GgufCodes::keep);
    read_tensors(kept);
    walsh::CheckpointSource dense(walsh::open_gguf_checkpoint(path), {});
    read_tensors(dense);
    walsh::CheckpointSource model = walsh::CheckpointSource::open(path, walsh::GgufCodes::keep);
    read_tensors(model);
    walsh::parse_config(dense.config_json(), "fuzz");
  } catch (const walsh::Error& e) {
    if (e.code() != walsh::ErrorCode::bad_input) std::abort();
  }
  return 0;
}
