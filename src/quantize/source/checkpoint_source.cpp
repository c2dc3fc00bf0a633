#include "quantize/source/checkpoint_source.h"

#include <array>
#include <cstring>
#include <vector>

#include "arch/plan.h"
#include "quantize/source/fold.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Types and names of stored quantization (arch/stored_quantization.h).
constexpr std::string_view kFp8 = "F8_E4M3";
constexpr const char* kFp8Scales = "_scale_inv";
constexpr const char* kMxBlocks = "_blocks";
constexpr const char* kMxScales = "_scales";
// Beside matrices in FP8: their scales, and those of activations, which are not rounded here.
constexpr std::array<std::string_view, 3> kFp8Others = {"_scale_inv", ".activation_scale",
                                                        ".input_scale"};

// Rows are what a part counts: elements of a vector.
int64_t rows_of(const Tensor& tensor) {
  return tensor.rows == 1 ? tensor.cols : tensor.rows;
}

// The rows of heads whose first `turned` ones are stored as pairs, the first of all pairs first.
Tensor separate_pairs(const Tensor& tensor, int64_t turned, int64_t head_dim) {
  const int64_t rows = rows_of(tensor);
  const size_t row_bytes = tensor.data.size() / static_cast<size_t>(rows);
  auto memory = std::make_shared<std::vector<std::byte>>(tensor.data.size());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t in_head = row % head_dim;
    int64_t from = row;
    if (in_head < turned) {
      const int64_t half = turned / 2;
      from += in_head < half ? in_head : in_head - turned + 1;
    }
    std::memcpy(memory->data() + static_cast<size_t>(row) * row_bytes,
                tensor.data.data() + static_cast<size_t>(from) * row_bytes, row_bytes);
  }
  Tensor result = tensor;
  result.data = *memory;
  result.owner = std::move(memory);
  return result;
}

// What the note says of tensors that no text needs.
std::string left_out(const ModelPlan& plan, size_t tensors) {
  return "the text part of a " + plan.whole + " is read, " + std::to_string(tensors) +
         " tensors of its other parts are left out";
}

bool equal(const Checkpoint& checkpoint, const TensorInfo& a, const TensorInfo& b) {
  if (a.dtype_text != b.dtype_text || a.shape != b.shape) return false;
  const auto x = checkpoint.data(a), y = checkpoint.data(b);
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size()) == 0;
}

}  // namespace

Checkpoint open_checkpoint(const std::string& path) {
  Checkpoint checkpoint = Checkpoint::open(path);
  const std::string where = path + "/config.json";
  const ModelPlan plan = read_plan(checkpoint.config_json(), where);
  if (!plan.stored_names.empty()) {
    const size_t others = checkpoint.rename(plan.stored_names);
    checkpoint.add_note(path + ": " + left_out(plan, others));
  }
  if (plan.stored.kind != StoredQuantization::Kind::none) {
    const bool fp8 = plan.stored.kind == StoredQuantization::Kind::fp8;
    checkpoint.add_note(path + ": its matrices in " + (fp8 ? "FP8" : "MXFP4") +
                        " are decoded while they are read");
  }
  const bool tied = plan.head.empty();
  const TensorInfo* head = tied ? checkpoint.find(plan.residual.head) : nullptr;
  const TensorInfo* embedding = checkpoint.find(plan.embedding);
  if (head == nullptr || embedding == nullptr || equal(checkpoint, *head, *embedding)) {
    return checkpoint;
  }
  checkpoint.correct_config(untied_config(checkpoint.config_json(), where),
                            where + ": ties the output head to the embedding, but " + head->name +
                                " differs from " + embedding->name + ": it is used");
  return checkpoint;
}

CheckpointSource::CheckpointSource(Checkpoint checkpoint, const std::vector<TensorPart>& parts,
                                   const StoredQuantization& stored)
    : checkpoint_(std::make_shared<Checkpoint>(std::move(checkpoint))), stored_(stored) {
  for (const TensorPart& part : parts) {
    parts_[part.name] = part;
    split_[part.source].push_back(part.name);
  }
}

CheckpointSource CheckpointSource::open(const std::string& folder) {
  Checkpoint checkpoint = open_checkpoint(folder);
  const ModelConfig config = parse_config(checkpoint.config_json(), folder + "/config.json");
  return CheckpointSource(std::move(checkpoint), config.parts, config.stored);
}

CheckpointSource::Stored CheckpointSource::find(const std::string& name) const {
  const auto part = parts_.find(name);
  const std::string& stored = part == parts_.end() ? name : part->second.source;
  if (const TensorInfo* info = checkpoint_->find(stored)) {
    if (stored_.kind != StoredQuantization::Kind::fp8 || info->dtype_text != kFp8) return {info};
    return {info, checkpoint_->find(stored + kFp8Scales)};
  }
  if (stored_.kind != StoredQuantization::Kind::mxfp4) return {};
  return {checkpoint_->find(stored + kMxBlocks), checkpoint_->find(stored + kMxScales)};
}

CheckpointSource::Stored CheckpointSource::get(const std::string& name) const {
  const Stored found = find(name);
  const auto fail = [&](const std::string& missing) {
    const auto part = parts_.find(name);
    const std::string& stored = part == parts_.end() ? name : part->second.source;
    throw Error(ErrorCode::bad_input, path() + ": tensor " + stored + missing,
                "the checkpoint lacks this tensor");
  };
  if (found.values == nullptr) fail("");
  if (found.scales != nullptr) return found;
  const bool fp8 = stored_.kind == StoredQuantization::Kind::fp8;
  if (fp8 && found.values->dtype_text == kFp8) fail(kFp8Scales);
  if (stored_.kind == StoredQuantization::Kind::mxfp4 && found.values->name.ends_with(kMxBlocks))
    fail(kMxScales);
  return found;
}

bool CheckpointSource::contains(const std::string& name) const {
  return find(name).values != nullptr;
}

std::string CheckpointSource::name_of(const TensorInfo& info) const {
  const std::string_view name = info.name;
  const auto without = [&](std::string_view suffix) {
    return std::string(name.substr(0, name.size() - suffix.size()));
  };
  if (stored_.kind == StoredQuantization::Kind::fp8) {
    for (const std::string_view suffix : kFp8Others)
      if (name.ends_with(suffix)) return {};
  }
  if (stored_.kind == StoredQuantization::Kind::mxfp4) {
    if (name.ends_with(kMxScales)) return {};
    if (name.ends_with(kMxBlocks)) return without(kMxBlocks);
  }
  return info.name;
}

std::vector<std::string> CheckpointSource::names() const {
  std::vector<std::string> result;
  for (const TensorInfo& info : checkpoint_->tensors()) {
    const std::string name = name_of(info);
    if (name.empty()) continue;
    const auto split = split_.find(name);
    if (split == split_.end()) {
      result.push_back(name);
    } else {
      result.insert(result.end(), split->second.begin(), split->second.end());
    }
  }
  return result;
}

const Format& CheckpointSource::format_of(const std::string& name) const {
  const Stored stored = get(name);
  if (stored.scales == nullptr) return dense_format(stored.values->dtype());
  return dense_format(stored_.kind == StoredQuantization::Kind::fp8 ? DType::f32 : DType::bf16);
}

StoredArray CheckpointSource::array(const TensorInfo& info) const {
  return {info.dtype_text, info.shape, checkpoint_->data(info), info.where()};
}

Tensor CheckpointSource::whole(const Stored& stored) const {
  if (stored.scales == nullptr) return dense(*stored.values);
  const StoredArray values = array(*stored.values), scales = array(*stored.scales);
  if (stored_.kind == StoredQuantization::Kind::fp8) return decode_fp8(values, scales, stored_);
  return decode_mxfp4(values, scales, 0, mxfp4_rows(values));
}

// Of the tensor that holds the part; matrices of all experts are not decoded for one of them.
Tensor CheckpointSource::rows_of_part(const Stored& stored, const TensorPart& part) const {
  const TensorPart& last = parts_.at(split_.at(part.source).back());
  const int64_t expected = last.first_row + last.rows;
  const auto check = [&](int64_t rows) {
    if (rows == expected) return;
    throw Error(ErrorCode::bad_input, stored.values->where(),
                "found " + std::to_string(rows) + " rows, expected " + std::to_string(expected));
  };
  if (stored.scales != nullptr && stored_.kind == StoredQuantization::Kind::mxfp4) {
    const StoredArray values = array(*stored.values);
    check(mxfp4_rows(values));
    return decode_mxfp4(values, array(*stored.scales), part.first_row, part.rows);
  }
  Tensor tensor = whole(stored);
  check(rows_of(tensor));
  const size_t row_bytes = tensor.data.size() / static_cast<size_t>(rows_of(tensor));
  tensor.data = tensor.data.subspan(static_cast<size_t>(part.first_row) * row_bytes,
                                    static_cast<size_t>(part.rows) * row_bytes);
  (tensor.rows == 1 ? tensor.cols : tensor.rows) = part.rows;
  return tensor;
}

Tensor CheckpointSource::dense(const TensorInfo& info) const {
  const auto& shape = info.shape;
  if ((shape.size() != 1 && shape.size() != 2) || info.elements() == 0) {
    throw Error(ErrorCode::bad_input, info.where(),
                "rank " + std::to_string(shape.size()) + " with " +
                    std::to_string(info.elements()) +
                    " elements, expected a vector or a matrix that is not empty");
  }
  Tensor tensor;
  tensor.format = &dense_format(info.dtype());
  tensor.rows = shape.size() == 2 ? shape[0] : 1;
  tensor.cols = shape.back();
  tensor.data = checkpoint_->data(info);
  tensor.owner = checkpoint_;
  return tensor;
}

Tensor CheckpointSource::load(const std::string& name) {
  const Stored stored = get(name);
  const auto found = parts_.find(name);
  if (found == parts_.end()) return whole(stored);
  const TensorPart& part = found->second;
  Tensor tensor = rows_of_part(stored, part);
  return part.turned == 0 ? tensor : separate_pairs(tensor, part.turned, part.head_dim);
}

void CheckpointSource::release(const std::string& name) {
  const Stored stored = find(name);
  if (stored.values != nullptr) checkpoint_->drop(*stored.values);
}

}  // namespace walsh
