#include "weights/row_groups.h"

#include <cstring>
#include <memory>

#include "base/aligned.h"
#include "walsh/error.h"

namespace walsh {
namespace {

std::span<const std::byte> take(std::span<const std::byte> array, const PassField& field,
                                int64_t unit, std::span<const RowGroups> groups,
                                std::vector<std::shared_ptr<const void>>& owners) {
  const auto bytes = [&](int64_t rows) {
    return static_cast<size_t>(rows / unit) * field.row_bytes;
  };
  if (groups.size() == 1 && groups[0].count == 1)
    return array.subspan(bytes(groups[0].first), bytes(groups[0].rows));
  size_t total = 0;
  for (const RowGroups& group : groups)
    total += bytes(group.rows) * static_cast<size_t>(group.count);
  auto memory = std::make_shared<AlignedArray<std::byte>>(total);
  std::byte* to = memory->data();
  for (const RowGroups& group : groups) {
    const size_t size = bytes(group.rows);
    for (int64_t i = 0; i < group.count; ++i, to += size)
      std::memcpy(to, array.data() + bytes(group.first + i * group.step), size);
  }
  owners.push_back(memory);
  return {memory->data(), memory->size()};
}

}  // namespace

std::vector<RowGroups> rows_of(const TensorPart& part) {
  if (!part.groups.empty()) return part.groups;
  if (part.turned != 0) {
    std::vector<RowGroups> rows;
    const int64_t half = part.turned / 2, rest = part.head_dim - part.turned;
    const int64_t end = part.first_row + part.rows;
    for (int64_t head = part.first_row; head < end; head += part.head_dim) {
      rows.push_back({head, 1, 2, half});
      rows.push_back({head + 1, 1, 2, half});
      if (rest > 0) rows.push_back({head + part.turned, rest, rest, 1});
    }
    return rows;
  }
  const int64_t first = part.shape.empty() ? part.first_row : part.first / part.cols;
  return {{first, part.rows, part.rows, 1}};
}

Tensor take_rows(const Tensor& whole, std::span<const RowGroups> groups, int64_t rows) {
  const Format& format = *whole.format;
  std::vector<std::shared_ptr<const void>> owners = {whole.owner};
  Tensor part = whole;
  part.rows = rows;
  for (int pass = 0; pass < format.passes; ++pass) {
    for (const PassField& field : pass_fields(format, pass, whole.rows, whole.cols)) {
      if (field.matrix_rows == PassField::kAllRows) continue;
      const int64_t unit = field.matrix_rows;
      for (const RowGroups& g : groups) {
        const bool cut =
            g.first % unit != 0 || g.rows % unit != 0 || (g.count > 1 && g.step % unit != 0);
        if (cut) {
          throw Error(ErrorCode::bad_input, std::string(format.name),
                      "its tiles of " + std::to_string(unit) +
                          " rows cannot be cut where this model's projections end");
        }
      }
      auto& array = part.pass[pass].*field.array;
      array = take(array, field, unit, groups, owners);
    }
  }
  part.owner = std::make_shared<std::vector<std::shared_ptr<const void>>>(std::move(owners));
  return part;
}

}  // namespace walsh
