// Opens a quantization_config and tensors of any types, shapes and bytes, named as in checkpoints
// of compressed-tensors, GPTQ, AWQ and bitsandbytes. They must give a walsh::Error, or matrices of
// the size that they say, of which all rows can be read, alone or with others.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "arch/config_reader.h"
#include "walsh/error.h"
#include "weights/checkpoint_source.h"

namespace {

// tools/make_fuzz_corpus.py has the same lists.
constexpr const char* kEndings[] = {".weight",
                                    ".weight_packed",
                                    ".weight_scale",
                                    ".weight_shape",
                                    ".weight_zero_point",
                                    ".weight_g_idx",
                                    ".weight_global_scale",
                                    ".qweight",
                                    ".qzeros",
                                    ".scales",
                                    ".g_idx",
                                    ".weight.absmax",
                                    ".weight.quant_map",
                                    ".weight.nested_absmax",
                                    ".weight.nested_quant_map",
                                    ".weight.quant_state.bitsandbytes__nf4",
                                    ".weight.quant_state.bitsandbytes__fp4",
                                    ".SCB",
                                    ".weight_format"};
struct Type {
  const char* name;
  size_t bytes;
};
constexpr Type kTypes[] = {{"F32", 4},     {"F16", 2},     {"BF16", 2}, {"I32", 4}, {"I64", 8},
                           {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"U8", 1},   {"I8", 1}};

// Takes bytes from the front of the input, or zeros when it is at its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  size_t byte() {
    uint8_t value = 0;
    take(&value, 1);
    return value;
  }
  size_t number() {
    const size_t low = byte();
    return low | byte() << 8;
  }
  void take(void* to, size_t bytes) {
    const size_t there = std::min(bytes, rest_.size());
    if (there > 0) std::memcpy(to, rest_.data(), there);
    rest_ = rest_.subspan(there);
  }

 private:
  std::span<const uint8_t> rest_;
};

// Adds a tensor, whose bytes are appended to the shard.
void add_tensor(Input& input, std::string& shard, walsh::CheckpointParts& parts) {
  walsh::TensorInfo info;
  info.name = std::string("m") + kEndings[input.byte() % std::size(kEndings)];
  for (const walsh::TensorInfo& other : parts.tensors)
    if (other.name == info.name) return;
  const Type& type = kTypes[input.byte() % std::size(kTypes)];
  info.dtype_text = type.name;
  size_t count = 1;
  for (size_t rank = input.byte() % 4; rank > 0; --rank) {
    info.shape.push_back(static_cast<int64_t>(input.number() % 10000));
    count *= static_cast<size_t>(info.shape.back());
    constexpr size_t kMost = size_t{1} << 16;  // a parser has checked that the file has all bytes
    if (count > kMost) return;
  }
  info.file = "fuzz";
  info.offset = shard.size();
  info.bytes = count * type.bytes;
  shard.resize(shard.size() + info.bytes);
  input.take(shard.data() + info.offset, info.bytes);
  parts.tensors.push_back(std::move(info));
}

walsh::CheckpointParts read_parts(const uint8_t* data, size_t size) {
  Input input(data, size);
  walsh::CheckpointParts parts;
  parts.path = "fuzz";
  parts.config.resize(std::min(input.number(), size));
  input.take(parts.config.data(), parts.config.size());
  std::string shard;
  while (!input.empty())
    add_tensor(input, shard, parts);
  shard += '\0';  // an empty file cannot be mapped
  static const int fd = ::memfd_create("walsh", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, 0) != 0) std::abort();
  if (::pwrite(fd, shard.data(), shard.size(), 0) != static_cast<ssize_t>(shard.size()))
    std::abort();
  parts.shards.emplace_back("/proc/self/fd/" + std::to_string(fd));
  return parts;
}

std::vector<float> rows_of(const walsh::Tensor& tensor, int64_t begin, int64_t end) {
  std::vector<float> rows(static_cast<size_t>((end - begin) * tensor.cols));
  walsh::decode_rows(tensor, begin, end, rows.data());
  return rows;
}

void read_tensor(walsh::CheckpointSource& source, const std::string& name) {
  try {
    const walsh::Tensor described = source.describe(name), tensor = source.load(name);
    if (described.rows != tensor.rows || described.cols != tensor.cols) std::abort();
    const std::vector<float> all = rows_of(tensor, 0, tensor.rows);
    const std::vector<float> last = rows_of(tensor, tensor.rows - 1, tensor.rows);
    const float* same = all.data() + all.size() - last.size();
    if (std::memcmp(last.data(), same, last.size() * sizeof(float)) != 0) std::abort();
  } catch (const walsh::Error& e) {
    if (e.code() != walsh::ErrorCode::bad_input) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const auto codes : {walsh::GgufCodes::drop, walsh::GgufCodes::keep}) {
    try {
      walsh::Checkpoint checkpoint = walsh::Checkpoint::assemble(read_parts(data, size));
      const walsh::Json config = walsh::parse_json(checkpoint.config_json(), "config.json");
      walsh::ConfigReader reader(config, "config.json");
      const walsh::StoredMethod stored = walsh::read_stored_method(reader);
      walsh::CheckpointSource source(std::move(checkpoint), {}, stored, codes);
      for (const std::string& name : source.names())
        read_tensor(source, name);
    } catch (const walsh::Error& e) {
      if (e.code() != walsh::ErrorCode::bad_input) std::abort();
    }
  }
  return 0;
}
