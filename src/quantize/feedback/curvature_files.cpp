#include "quantize/feedback/curvature_files.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "io/json.h"
#include "io/safetensors.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr const char* kKey = "walsh_curvature";
constexpr int64_t kCurvatureVersion = 1;
constexpr int64_t kMostRows = int64_t{1} << 24;
constexpr const char* kMeasure = "python -m walsh.curvature";

[[noreturn]] void refuse(const std::string& where, const std::string& reason) {
  throw Error(ErrorCode::bad_input, where, reason);
}

std::vector<std::string> layer_files(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator it(folder, error);
  if (error) throw Error(ErrorCode::io, folder, error.message());
  std::vector<std::string> paths;
  for (const auto& entry : it) {
    const std::string name = entry.path().filename().string();
    if (name == "work") {
      refuse(folder, std::string("the measurement was interrupted: ") + kMeasure +
                         " --resume completes it");
    }
    if (name.starts_with("layer-") && name.ends_with(".safetensors"))
      paths.push_back(entry.path().string());
  }
  if (paths.empty())
    refuse(folder, std::string("no layer-*.safetensors, expected what ") + kMeasure + " writes");
  std::sort(paths.begin(), paths.end());
  return paths;
}

int64_t triangle(int64_t rows) {
  return rows * (rows + 1) / 2;
}

// Returns the rows that a matrix has within the tensor in which it is stored.
std::vector<int64_t> stored_rows(const TensorPart* part, int64_t rows) {
  std::vector<int64_t> result;
  if (part != nullptr && !part->groups.empty()) {
    for (const TensorPart::RowGroups& group : part->groups) {
      for (int64_t i = 0; i < group.count * group.rows; ++i)
        result.push_back(group.first + i / group.rows * group.step + i % group.rows);
    }
    return result;
  }
  const int64_t first = part != nullptr ? part->first_row : 0;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t from = row;
    if (part != nullptr && part->turned != 0) {  // CheckpointSource separates pairs in the same way
      const int64_t in_head = row % part->head_dim, half = part->turned / 2;
      if (in_head < part->turned) from += in_head < half ? in_head : in_head - part->turned + 1;
    }
    result.push_back(first + from);
  }
  return result;
}

// Returns whether a matrix was measured by itself. Experts that share a tensor are, too.
bool measured_by_itself(const CheckpointSource::Place& place) {
  return place.part == nullptr || place.part->shape.size() == 3;
}

}  // namespace

CurvatureFiles::CurvatureFiles(const std::string& folder) : folder_(folder) {
  for (const std::string& path : layer_files(folder))
    open_layer(path);
}

void CurvatureFiles::open_layer(const std::string& path) {
  files_.emplace_back(path);
  const std::span<const std::byte> bytes = files_.back().bytes();
  std::map<std::string, std::string> metadata;
  const auto entries = parse_safetensors(bytes, path, &metadata);
  const auto about = metadata.find(kKey);
  if (about == metadata.end()) refuse(path, std::string("lacks '") + kKey + "' in __metadata__");
  const std::string where = path + ": " + kKey;
  const Json json = parse_json(about->second, where);
  if (const int64_t version = get_int(json, "version", where); version != kCurvatureVersion) {
    refuse(where, "version " + std::to_string(version) + ", this walsh reads version " +
                      std::to_string(kCurvatureVersion));
  }
  const std::string text = get_string(json, "text", where);
  if (!text_.empty() && text != text_) refuse(path, "was measured on another text than the others");
  text_ = text;
  for (const auto& [name, value] : get_object(json, "matrices", where).items()) {
    Measured measured;
    measured.where = path + ": tensor " + name;
    measured.tokens = get_int(value, "tokens", measured.where, 0);
    measured.weights = get_string(value, "weights", measured.where);
    if (measured.tokens > 0) {
      measured.rows = get_int(value, "rows", measured.where, 1, kMostRows);
      measured.checksum = get_string(value, "checksum", measured.where);
      const auto entry =
          std::find_if(entries.begin(), entries.end(),
                       [&wanted = name](const SafetensorsEntry& e) { return e.name == wanted; });
      if (entry == entries.end()) refuse(path, "lacks the tensor " + name);
      const std::vector<int64_t> shape = {triangle(measured.rows)};
      if (entry->dtype != "F32" || entry->shape != shape) {
        refuse(measured.where, "expected F32 and the " + std::to_string(shape[0]) +
                                   " values of a triangle of " + std::to_string(measured.rows) +
                                   " rows");
      }
      measured.values = bytes.subspan(entry->offset, entry->bytes);
    }
    const std::string measured_where = measured.where;
    if (!matrices_.emplace(name, std::move(measured)).second)
      refuse(measured_where, "is in another file, too");
  }
}

void CurvatureFiles::check_text(const std::string& checksum) const {
  if (text_ == checksum) return;
  refuse(folder_, "was measured on another text: its checksum is " + text_ +
                      ", that of --calibrate " + checksum);
}

std::string CurvatureFiles::checksum() const {
  ChecksumStream sum;
  for (const auto& [name, measured] : matrices_) {
    sum.update(std::as_bytes(std::span(name)));
    sum.update(std::as_bytes(std::span(measured.checksum)));
  }
  return sum.digest().hex();
}

const CurvatureFiles::Measured& CurvatureFiles::find(const CheckpointSource& checkpoint,
                                                     const std::string& matrix) const {
  const CheckpointSource::Place place = checkpoint.place_of(matrix);
  const std::string& name = measured_by_itself(place) ? matrix : place.part->source;
  const auto found = matrices_.find(name);
  if (found == matrices_.end()) refuse(folder_, "lacks the matrix " + name);
  return found->second;
}

Checksum CurvatureFiles::checksum(const CheckpointSource& checkpoint,
                                  const std::string& matrix) const {
  return walsh::checksum(std::as_bytes(std::span(find(checkpoint, matrix).checksum)));
}

std::optional<InputMoments> CurvatureFiles::moments(const CheckpointSource& checkpoint,
                                                    const std::string& matrix, int64_t rows) const {
  const Measured& measured = find(checkpoint, matrix);
  if (checkpoint.stored_checksum(matrix).hex() != measured.weights)
    refuse(measured.where, "was measured with other weights than those of " + checkpoint.path());
  if (measured.tokens == 0) return std::nullopt;
  if (walsh::checksum(measured.values).hex() != measured.checksum)
    refuse(measured.where, "its checksum does not fit: the file is damaged");
  const CheckpointSource::Place place = checkpoint.place_of(matrix);
  const auto taken = stored_rows(measured_by_itself(place) ? nullptr : place.part, rows);
  const auto most = std::max_element(taken.begin(), taken.end());
  const bool whole = measured_by_itself(place) && measured.rows != rows;
  if (static_cast<int64_t>(taken.size()) != rows || whole || *most >= measured.rows) {
    refuse(measured.where, "has " + std::to_string(measured.rows) + " rows, which does not fit " +
                               matrix + " with " + std::to_string(rows));
  }
  const auto value = [&](int64_t i, int64_t j) {
    const int64_t row = std::min(i, j), col = std::max(i, j);
    const int64_t at = row * measured.rows - row * (row - 1) / 2 + col - row;
    float v;
    std::memcpy(&v, measured.values.data() + at * static_cast<int64_t>(sizeof v), sizeof v);
    return v;
  };
  InputMoments result(rows);
  result.tokens = measured.tokens;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = i; j < rows; ++j) {
      const float mean = value(taken[static_cast<size_t>(i)], taken[static_cast<size_t>(j)]);
      if (!std::isfinite(mean)) refuse(measured.where, "has NaN or infinity");
      result.sums[static_cast<size_t>(i * rows + j)] =
          static_cast<float>(double{mean} * static_cast<double>(measured.tokens));
    }
  }
  return result;
}

}  // namespace walsh
