#include "io/gguf.h"

#include <algorithm>
#include <bit>
#include <new>
#include <tuple>
#include <utility>

#include "base/checked.h"
#include "io/byte_reader.h"
#include "io/printable.h"

namespace walsh {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // its bytes read "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMinAlignment = 8;
// This limits keys, values and tensor records together, and so the memory of a parse.
constexpr uint64_t kMaxHeaderBytes = uint64_t{512} << 20;
// A metadata pair and a tensor record have at least this many bytes.
constexpr uint64_t kMinPairBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view where)
      : file_size_(bytes.size()),
        where_(where),
        reader_(bytes.first(std::min<uint64_t>(bytes.size(), kMaxHeaderBytes)), where) {}

  GgufContent parse() {
    read_preamble();
    for (uint64_t i = 0; i < pair_count_; ++i)
      read_pair();
    read_alignment();
    for (uint64_t i = 0; i < tensor_count_; ++i)
      read_tensor();
    content_.data_offset = checked_align(reader_.offset(), content_.alignment, where_);
    place_tensors();
    return std::move(content_);
  }

 private:
  [[noreturn]] void refuse(std::string_view item, std::string reason) const {
    throw Error(ErrorCode::bad_input, std::string(where_) + ": " + std::string(item),
                std::move(reason));
  }

  uint64_t read_count(std::string_view what, uint64_t min_bytes_each) {
    const uint64_t count = reader_.u64(what);
    if (count > reader_.remaining() / min_bytes_each) {
      reader_.fail(std::string(what) + " is " + std::to_string(count) + ", more than the " +
                   std::to_string(reader_.remaining()) + " bytes that are left can hold");
    }
    return count;
  }

  void read_preamble() {
    if (const uint32_t magic = reader_.u32("the magic"); magic != kMagic) {
      reader_.fail(
          "not a GGUF file: it does not start with \"GGUF\"; a checkpoint is given as its folder");
    }
    content_.version = reader_.u32("the version");
    if ((content_.version & 0xFFFF) == 0 && content_.version != 0) {
      reader_.fail("a big-endian GGUF file, expected little-endian");
    }
    if (content_.version != 2 && content_.version != 3) {
      reader_.fail("GGUF version " + std::to_string(content_.version) + ", expected 2 or 3");
    }
    tensor_count_ = read_count("the number of tensors", kMinTensorBytes);
    pair_count_ = read_count("the number of metadata pairs", kMinPairBytes);
  }

  std::string read_name(uint64_t max_bytes, std::string_view what) {
    const std::string_view name = reader_.string(max_bytes, what);
    if (name.empty() || !is_plain_utf8(name)) {
      reader_.fail(std::string(what) + " \"" + printable(name) +
                   "\" is empty, not UTF-8 or holds control characters");
    }
    return std::string(name);
  }

  GgufType read_type(std::string_view what) {
    const uint32_t id = reader_.u32(what);
    if (id > static_cast<uint32_t>(GgufType::f64)) {
      reader_.fail("unknown value type " + std::to_string(id) + " of " + std::string(what));
    }
    return static_cast<GgufType>(id);
  }

  void read_pair() {
    std::string key = read_name(kGgufMaxKeyBytes, "a metadata key");
    const std::string what = "the value of " + printable(key);
    const GgufType type = read_type(what);
    if (!content_.metadata_index.try_emplace(key, content_.metadata.size()).second) {
      reader_.fail("duplicate metadata key " + printable(key));
    }
    GgufValue value = read_value(type, what);
    const uint64_t offset = reader_.offset() - value.raw().size();
    content_.metadata.push_back({std::move(key), std::move(value), offset});
  }

  GgufValue read_value(GgufType type, const std::string& what) {
    if (type == GgufType::string) {
      return GgufValue::text(std::string(reader_.string(kMaxHeaderBytes, what)));
    }
    if (type != GgufType::array) {
      return GgufValue::raw_scalar(type, read_raw(type, 1, what));
    }
    const GgufType element = read_type(what);
    if (element == GgufType::array) reader_.fail(what + " is an array of arrays");
    if (element == GgufType::string) {
      const uint64_t count = read_count(what, sizeof(uint64_t));
      std::vector<std::string> texts;
      texts.reserve(count);
      for (uint64_t i = 0; i < count; ++i) {
        texts.emplace_back(reader_.string(kMaxHeaderBytes, what));
      }
      return GgufValue::texts(std::move(texts));
    }
    const uint64_t count = read_count(what, gguf_type_size(element));
    return GgufValue::raw_array(element, read_raw(element, count, what));
  }

  std::vector<std::byte> read_raw(GgufType type, uint64_t count, const std::string& what) {
    const auto bytes = reader_.take(checked_mul(count, gguf_type_size(type), where_), what);
    if (type == GgufType::boolean) {
      for (const std::byte b : bytes) {
        if (b > std::byte{1}) reader_.fail(what + " holds a bool that is neither 0 nor 1");
      }
    }
    return {bytes.begin(), bytes.end()};
  }

  void read_alignment() {
    content_.alignment = kDefaultAlignment;
    const GgufValue* value = content_.find(kGgufAlignmentKey);
    if (value == nullptr) return;
    const std::string item = std::string(where_) + ": " + kGgufAlignmentKey;
    const uint64_t alignment = value->as_uint(item);
    if (!std::has_single_bit(alignment) || alignment < kMinAlignment ||
        alignment > kGgufMaxAlignment) {
      refuse(kGgufAlignmentKey,
             "is " + std::to_string(alignment) + ", expected a power of two from 8 to 4096");
    }
    content_.alignment = alignment;
  }

  void read_tensor() {
    GgufTensor tensor;
    tensor.name = read_name(kGgufMaxNameBytes, "a tensor name");
    const std::string item = "tensor " + printable(tensor.name);
    const uint32_t rank = reader_.u32(item);
    if (rank > kGgufMaxRank) {
      reader_.fail(item + " has " + std::to_string(rank) + " dimensions, expected at most " +
                   std::to_string(kGgufMaxRank));
    }
    for (uint32_t d = 0; d < rank; ++d) {
      tensor.dims.push_back(reader_.u64(item));
      if (tensor.dims.back() == 0) reader_.fail(item + " has a dimension of 0");
    }
    tensor.type = reader_.u32(item);
    tensor.offset = reader_.u64(item);
    tensor.bytes = gguf_tensor_bytes(tensor.type, tensor.dims, std::string(where_) + ": " + item);
    if (!content_.tensor_index.try_emplace(tensor.name, content_.tensors.size()).second) {
      reader_.fail("duplicate " + item);
    }
    content_.tensors.push_back(std::move(tensor));
  }

  // Checks the ranges and makes the offsets count from the start of the file.
  void place_tensors() {
    // Each has a begin, an end and the tensor's index.
    using Range = std::tuple<uint64_t, uint64_t, size_t>;
    std::vector<Range> ranges;
    ranges.reserve(content_.tensors.size());
    for (size_t i = 0; i < content_.tensors.size(); ++i) {
      GgufTensor& tensor = content_.tensors[i];
      const std::string item = "tensor " + printable(tensor.name);
      if (tensor.offset % content_.alignment != 0) {
        refuse(item, "offset " + std::to_string(tensor.offset) + " is not a multiple of " +
                         std::to_string(content_.alignment));
      }
      tensor.offset = checked_add(tensor.offset, content_.data_offset, where_);
      const uint64_t end = checked_add(tensor.offset, tensor.bytes, where_);
      if (end > file_size_) {
        refuse(item, "its data end at byte " + std::to_string(end) + ", but the file has " +
                         std::to_string(file_size_) + " bytes");
      }
      ranges.emplace_back(tensor.offset, end, i);
    }
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); ++i) {
      if (std::get<0>(ranges[i]) < std::get<1>(ranges[i - 1])) {
        refuse("tensor " + printable(content_.tensors[std::get<2>(ranges[i])].name),
               "its data overlap those of " +
                   printable(content_.tensors[std::get<2>(ranges[i - 1])].name));
      }
    }
  }

  uint64_t file_size_;
  std::string_view where_;
  ByteReader reader_;
  GgufContent content_;
  uint64_t tensor_count_ = 0, pair_count_ = 0;
};

}  // namespace

const GgufEntry* GgufContent::find_entry(std::string_view key) const {
  const auto place = metadata_index.find(key);
  return place == metadata_index.end() ? nullptr : &metadata[place->second];
}

const GgufValue* GgufContent::find(std::string_view key) const {
  const GgufEntry* entry = find_entry(key);
  return entry == nullptr ? nullptr : &entry->value;
}

const GgufTensor* GgufContent::find_tensor(std::string_view name) const {
  const auto place = tensor_index.find(name);
  return place == tensor_index.end() ? nullptr : &tensors[place->second];
}

const GgufValue& GgufContent::get(std::string_view key, std::string_view where) const {
  const GgufValue* value = find(key);
  if (value == nullptr) {
    throw Error(ErrorCode::bad_input, std::string(where),
                "metadata key " + printable(key) + " is missing");
  }
  return *value;
}

GgufContent parse_gguf(std::span<const std::byte> bytes, std::string_view where) {
  try {
    return Parser(bytes, where).parse();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::limit, std::string(where), "not enough memory for the GGUF header");
  }
}

bool looks_like_gguf(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && ByteReader(bytes, "").u32("") == kMagic;
}

}  // namespace walsh
