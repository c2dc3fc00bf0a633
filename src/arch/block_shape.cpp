#include "arch/block_shape.h"

#include "arch/config_reader.h"

namespace walsh {

BlockShape read_block_shape(ConfigReader& reader, const char* key) {
  const Json* block = reader.value(key);
  if (block == nullptr) return {};
  const auto is_size = [](const Json& size) {
    constexpr int64_t kMost = int64_t{1} << 20;
    return size.is_number_unsigned() && size > 0 && size <= kMost;
  };
  if (!block->is_array() || block->size() != 2 || !is_size((*block)[0]) || !is_size((*block)[1]))
    reader.refuse(key, "expected rows and columns of a block");
  return {(*block)[0].get<int64_t>(), (*block)[1].get<int64_t>()};
}

}  // namespace walsh
