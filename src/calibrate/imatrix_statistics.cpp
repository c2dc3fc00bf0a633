#include "calibrate/imatrix_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "import/gguf_family.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts", kWeight = ".weight";

std::vector<double> read_values(std::span<const std::byte> file, const GgufTensor& tensor,
                                const std::string& where) {
  std::vector<double> values(tensor.bytes / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) {
    float value;
    std::memcpy(&value, file.data() + tensor.offset + i * sizeof value, sizeof value);
    if (!std::isfinite(value) || value < 0)
      throw Error(ErrorCode::bad_input, where + ": tensor " + tensor.name,
                  "holds a value that is no sum of squares and no count");
    values[i] = value;
  }
  return values;
}

// Returns the checkpoint's name of a matrix that llama.cpp calls `gguf`, or an empty one if that is
// not known. "*" stands for the number of an expert.
std::string checkpoint_name(std::string_view gguf, std::string_view model_type) {
  if (gguf == "output") return "lm_head.weight";
  constexpr std::string_view kLayer = "blk.";
  if (!gguf.starts_with(kLayer)) return {};
  const size_t dot = gguf.find('.', kLayer.size());
  if (dot == std::string_view::npos) return {};
  const std::string_view number = gguf.substr(kLayer.size(), dot - kLayer.size());
  const GgufName* name = nullptr;
  for (const GgufFamily& family : gguf_families()) {
    if (name == nullptr && family.model_type == model_type)
      name = gguf_layer_name(family, gguf.substr(dot + 1));
  }
  if (name == nullptr) name = gguf_layer_name(GgufFamily{}, gguf.substr(dot + 1));
  if (name == nullptr) return {};
  return fmt::format("model.layers.{}.{}{}", number, name->checkpoint, kWeight);
}

// llama-imatrix wrote these (imatrix.dat) before GGUF: the number of matrices, and for each the
// length of its name, the name, and numbers.
bool looks_like_old_imatrix(std::span<const std::byte> bytes) {
  uint32_t head[2];
  if (bytes.size() < sizeof head) return false;
  std::memcpy(head, bytes.data(), sizeof head);
  const auto [matrices, length] = head;
  constexpr uint32_t kMostMatrices = 1 << 20, kMostLength = 256;
  const size_t left = bytes.size() - sizeof head;
  if (matrices == 0 || matrices > kMostMatrices || length > std::min<size_t>(kMostLength, left))
    return false;
  const std::string_view name(reinterpret_cast<const char*>(bytes.data()) + sizeof head, length);
  return name.ends_with(kWeight);
}

}  // namespace

std::shared_ptr<const GgufContent> read_imatrix(std::span<const std::byte> bytes,
                                                std::string_view where) {
  if (looks_like_old_imatrix(bytes)) {
    throw Error(ErrorCode::bad_input, std::string(where),
                "is an imatrix of the old form, expected one in GGUF: llama-imatrix --in-file OLD "
                "-o NEW.gguf converts it");
  }
  if (!looks_like_gguf(bytes)) return nullptr;
  auto header = std::make_shared<const GgufContent>(parse_gguf(bytes, where));
  const GgufValue* type = header->find("general.type");
  const bool is_imatrix = type != nullptr && !type->is_array() &&
                          type->type() == GgufType::string && type->as_text(where) == "imatrix";
  return is_imatrix ? header : nullptr;
}

ImatrixStatistics::ImatrixStatistics(const GgufContent& header, std::span<const std::byte> file,
                                     std::string where, std::string_view model_type, ModelPlan plan)
    : where_(std::move(where)), plan_(std::move(plan)) {
  for (const GgufTensor& tensor : header.tensors) {
    std::string_view name = tensor.name;
    if (!name.ends_with(kSums)) continue;
    name.remove_suffix(kSums.size());
    if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
    if (std::string matrix = checkpoint_name(name, model_type); !matrix.empty())
      add(header, file, tensor, matrix);
  }
  size_t known = 0;
  for (size_t site = 0; site < plan_.sites.size(); ++site)
    known += find(static_cast<int>(site)) != nullptr ? 1 : 0;
  if (known == 0)
    throw Error(ErrorCode::bad_input, where_, "has nothing about the matrices of this model");
  note_ = fmt::format(
      "{} has means of squares for {} of {} inputs of matrices and no products of inputs: "
      "a text lowers the error further",
      where_, known, plan_.sites.size());
}

void ImatrixStatistics::add(const GgufContent& header, std::span<const std::byte> file,
                            const GgufTensor& sums, const std::string& matrix) {
  const std::string stem = sums.name.substr(0, sums.name.size() - kSums.size());
  const GgufTensor* counts = header.find_tensor(stem + std::string(kCounts));
  const auto fail = [&](const std::string& reason) {
    throw Error(ErrorCode::bad_input, where_ + ": tensor " + sums.name, reason);
  };
  constexpr uint32_t kF32 = 0;
  if (counts == nullptr) fail("the file lacks its counts");
  if (sums.type != kF32 || counts->type != kF32) fail("expected F32 and counts in F32");
  Measured measured = {read_values(file, sums, where_), read_values(file, *counts, where_)};
  if (measured.counts.empty() || measured.sums.size() % measured.counts.size() != 0 ||
      measured.sums.empty())
    fail("has another number of matrices than its counts");
  // A site adds the sums of its experts, in floats.
  const size_t width = measured.sums.size() / measured.counts.size();
  for (size_t i = 0; i < width; ++i) {
    double all = 0;
    for (size_t at = i; at < measured.sums.size(); at += width)
      all += measured.sums[at];
    if (all > std::numeric_limits<float>::max()) fail("has sums that overflow together");
  }
  measured_[matrix] = std::move(measured);
}

const ImatrixStatistics::Measured* ImatrixStatistics::find(int site) const {
  const auto index = static_cast<size_t>(site);
  const bool head = index == plan_.sites.size();
  const std::vector<std::string> names =
      head ? std::vector<std::string>{"lm_head.weight"} : plan_.sites[index].matrices;
  for (const std::string& name : names) {
    const auto expert = plan_.experts.find(name);
    const auto found = measured_.find(expert == plan_.experts.end() ? name : expert->second.kind);
    if (found == measured_.end()) continue;
    const size_t width = found->second.sums.size() / found->second.counts.size();
    const auto expected = static_cast<size_t>(plan_.shapes.at(name)[1]);
    if (width != expected)
      throw Error(ErrorCode::bad_input, where_,
                  fmt::format("has {} inputs of {}, expected {}", width, name, expected));
    return &found->second;
  }
  return nullptr;
}

const InputMoments& ImatrixStatistics::expert_moments(int site, int expert) {
  const auto index = static_cast<size_t>(site);
  const bool head = index == plan_.sites.size();
  std::string layer = head ? "" : plan_.sites[index].name;
  layer.resize(std::min(layer.size(), layer.rfind('.')));
  if (layer != layer_) kept_.clear();
  layer_ = layer;
  if (const auto known = kept_.find({site, expert}); known != kept_.end()) return known->second;

  const Measured* measured = find(site);
  const int64_t width = head ? plan_.shapes.at(plan_.head.empty() ? plan_.embedding : plan_.head)[1]
                             : plan_.sites[index].width;
  InputMoments moments(width);
  const auto diagonal = [&](int64_t i) -> float& {
    return moments.sums[static_cast<size_t>(i * (width + 1))];
  };
  const auto matrices = measured != nullptr ? measured->counts.size() : 0;
  for (size_t m = 0; m < matrices; ++m) {
    if (expert >= 0 && matrices > 1 && m != static_cast<size_t>(expert)) continue;
    moments.tokens += static_cast<int64_t>(std::min(measured->counts[m], 1e15));
    for (int64_t i = 0; i < width; ++i)
      diagonal(i) += static_cast<float>(
          measured->sums[m * static_cast<size_t>(width) + static_cast<size_t>(i)]);
  }
  if (moments.tokens == 0 && expert < 0) {
    moments.tokens = 1;
    for (int64_t i = 0; i < width; ++i)
      diagonal(i) = 1;
  }
  return kept_.emplace(std::pair{site, expert}, std::move(moments)).first->second;
}

}  // namespace walsh
