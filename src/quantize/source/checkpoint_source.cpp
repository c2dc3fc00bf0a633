#include "quantize/source/checkpoint_source.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <vector>

#include "arch/plan.h"
#include "base/aligned.h"
#include "import/gguf_checkpoint.h"
#include "quantize/source/fold.h"
#include "quantize/source/mxfp4.h"
#include "walsh/error.h"

namespace walsh {
namespace {

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

// The rows of a part that is groups of them.
void gather_rows(std::span<const std::byte> stored, const TensorPart& part, size_t size,
                 Tensor& tensor) {
  const size_t row = static_cast<size_t>(part.cols) * size;
  auto copy = std::make_shared<AlignedArray<std::byte>>(static_cast<size_t>(part.rows) * row);
  std::byte* to = copy->data();
  for (const TensorPart::RowGroups& groups : part.groups) {
    const size_t bytes = static_cast<size_t>(groups.rows) * row;
    for (int64_t i = 0; i < groups.count; ++i, to += bytes) {
      const auto at = static_cast<size_t>(groups.first + i * groups.step) * row;
      std::memcpy(to, stored.data() + at, bytes);
    }
  }
  tensor.data = {copy->data(), copy->size()};
  tensor.owner = copy;
}

// What the note says of tensors that no text needs.
std::string left_out(const ModelPlan& plan, size_t tensors) {
  if (plan.whole.empty())
    return std::to_string(tensors) + " tensors that no text needs are left out";
  return "the text part of a " + plan.whole + " is read, " + std::to_string(tensors) +
         " tensors of its other parts are left out";
}

bool equal(const Checkpoint& checkpoint, const TensorInfo& a, const TensorInfo& b) {
  if (a.dtype_text != b.dtype_text || a.shape != b.shape) return false;
  const auto x = checkpoint.data(a), y = checkpoint.data(b);
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size()) == 0;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

}  // namespace

Checkpoint open_checkpoint(const std::string& path) {
  Checkpoint checkpoint =
      is_foreign_gguf(path) ? open_gguf_checkpoint(path) : Checkpoint::open(path);
  const std::string where = checkpoint.config_place();
  const ModelPlan plan = read_plan(checkpoint.config_json(), where);
  if (!plan.stored_names.empty()) {
    const size_t others = checkpoint.rename(plan.stored_names);
    if (others > 0 || !plan.whole.empty())
      checkpoint.add_note(path + ": " + left_out(plan, others));
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
                                   GgufCodes codes)
    : checkpoint_(std::make_shared<Checkpoint>(std::move(checkpoint))), codes_(codes) {
  std::set<std::string_view> apart;  // sources that are not there, but their parts by themselves
  for (const TensorPart& part : parts) {
    if (checkpoint_->find(part.source) == nullptr && checkpoint_->find(part.name) != nullptr)
      apart.insert(part.source);
  }
  for (TensorPart part : parts) {
    if (apart.contains(part.source)) continue;
    // Experts that are coded in MXFP4 have other tensors in place of the plain one.
    const std::string codes = part.source + "_blocks", scales = part.source + "_scales";
    const bool turned = part.shape.size() == 3 && part.col_step == part.shape[2];
    if (turned && checkpoint_->find(part.source) == nullptr &&
        checkpoint_->find(codes) != nullptr) {
      scales_[codes] = scales;
      split_[scales];  // is not seen itself
      part.source = codes;
    }
    split_[part.source].push_back(part.name);
    parts_[part.name] = std::move(part);
  }
}

CheckpointSource CheckpointSource::open(const std::string& folder, GgufCodes codes) {
  Checkpoint checkpoint = open_checkpoint(folder);
  const ModelConfig config = parse_config(checkpoint.config_json(), checkpoint.config_place());
  return CheckpointSource(std::move(checkpoint), config.parts, codes);
}

bool CheckpointSource::contains(const std::string& name) const {
  const auto part = parts_.find(name);
  return checkpoint_->find(part == parts_.end() ? name : part->second.source) != nullptr;
}

std::vector<std::string> CheckpointSource::names() const {
  std::vector<std::string> result;
  for (const TensorInfo& info : checkpoint_->tensors()) {
    const auto split = split_.find(info.name);
    if (split == split_.end()) {
      result.push_back(info.name);
    } else {
      result.insert(result.end(), split->second.begin(), split->second.end());
    }
  }
  return result;
}

// Of the tensor in which `name` is stored.
const TensorInfo& CheckpointSource::find(const std::string& name) const {
  const auto part = parts_.find(name);
  const std::string& stored = part == parts_.end() ? name : part->second.source;
  if (const TensorInfo* info = checkpoint_->find(stored)) return *info;
  throw Error(ErrorCode::bad_input, path() + ": tensor " + stored,
              "the checkpoint lacks this tensor");
}

const Format& CheckpointSource::format_of(const TensorInfo& info) const {
  if (info.gguf) return gguf_format(info, codes_);
  return dense_format(scales_.contains(info.name) ? DType::bf16 : info.dtype());
}

const Format& CheckpointSource::format_of(const std::string& name) const {
  return format_of(find(name));
}

std::vector<std::string> CheckpointSource::notes() const {
  std::vector<std::string> notes = checkpoint_->notes();
  const std::string note = codes_ == GgufCodes::keep ? describe_gguf(*checkpoint_, codes_)
                                                     : warn_of_quantized(*checkpoint_);
  if (!note.empty()) notes.push_back(note);
  return notes;
}

// Throws bad_input if what a part is stored in has not the shape that it expects.
void CheckpointSource::check_part(const TensorInfo& info, const TensorPart& part) const {
  const auto expect = [](const TensorInfo& tensor, const std::vector<int64_t>& shape) {
    if (tensor.shape == shape) return;
    throw Error(ErrorCode::bad_input, tensor.where(),
                "shape is " + shape_text(tensor.shape) + ", expected " + shape_text(shape));
  };
  const auto coded = scales_.find(info.name);
  if (coded == scales_.end()) return expect(info, part.shape);
  const TensorInfo* scales = checkpoint_->find(coded->second);
  if (scales == nullptr) {
    throw Error(ErrorCode::bad_input, path() + ": tensor " + coded->second,
                "the checkpoint lacks this tensor, the scales of " + info.name);
  }
  const int64_t blocks = mxfp4_blocks(part.shape[1]);
  expect(info, {part.shape[0], part.shape[2], blocks, kMxfp4BlockBytes});
  expect(*scales, {part.shape[0], part.shape[2], blocks});
  for (const TensorInfo* tensor : {&info, scales}) {
    if (tensor->dtype_text == "U8") continue;
    throw Error(ErrorCode::bad_input, tensor->where(),
                "element type " + tensor->dtype_text + ", expected U8 for MXFP4");
  }
}

Tensor CheckpointSource::describe(const std::string& name) const {
  const TensorInfo& info = find(name);
  const auto found = parts_.find(name);
  Tensor tensor;
  if (found != parts_.end()) {
    check_part(info, found->second);
    tensor.rows = found->second.rows;
    tensor.cols = found->second.cols;
  } else {
    std::vector<int64_t> shape = info.shape;
    // A convolution of each channel alone, [channels, 1, taps].
    if (shape.size() == 3 && shape[1] == 1) shape.erase(shape.begin() + 1);
    if ((shape.size() != 1 && shape.size() != 2) || info.elements() == 0) {
      throw Error(ErrorCode::bad_input, info.where(),
                  "rank " + std::to_string(shape.size()) + " with " +
                      std::to_string(info.elements()) +
                      " elements, expected a vector or a matrix that is not empty");
    }
    tensor.rows = shape.size() == 2 ? shape[0] : 1;
    tensor.cols = shape.back();
  }
  tensor.format = &format_of(info);
  return tensor;
}

Tensor CheckpointSource::part(const TensorInfo& info, const TensorPart& part, Tensor tensor) const {
  if (scales_.contains(info.name)) return coded_part(info, part, std::move(tensor));
  const bool rows = part.col_step == 1 && (part.row_step == part.cols || part.rows == 1);
  if (info.gguf) {
    if (!rows) {
      throw Error(ErrorCode::bad_input, info.where(),
                  "its element order is not supported in a GGUF file");
    }
    return load_gguf_rows(checkpoint_, info, codes_, part.first / part.cols, part.rows);
  }
  const size_t size = dtype_size(info.dtype());
  if (!part.groups.empty()) {
    gather_rows(checkpoint_->data(info), part, size, tensor);
    return tensor;
  }
  const std::span<const std::byte> stored =
      checkpoint_->data(info).subspan(static_cast<size_t>(part.first) * size);
  const size_t bytes = static_cast<size_t>(part.rows * part.cols) * size;
  if (rows) {
    tensor.data = stored.first(bytes);
    tensor.owner = checkpoint_;
    return part.turned == 0 ? tensor : separate_pairs(tensor, part.turned, part.head_dim);
  }
  auto copy = std::make_shared<AlignedArray<std::byte>>(bytes);
  std::byte* to = copy->data();
  for (int64_t r = 0; r < part.rows; ++r) {
    for (int64_t c = 0; c < part.cols; ++c, to += size) {
      const auto at = static_cast<size_t>(r * part.row_step + c * part.col_step) * size;
      std::memcpy(to, stored.data() + at, size);
    }
  }
  tensor.data = {copy->data(), copy->size()};
  tensor.owner = copy;
  return tensor;
}

// Of a tensor [experts, cols, rows in turn] that is coded as [experts, rows in turn, cols].
Tensor CheckpointSource::coded_part(const TensorInfo& codes, const TensorPart& part,
                                    Tensor tensor) const {
  const TensorInfo& scales = *checkpoint_->find(scales_.at(codes.name));
  const int64_t cols = part.shape[1], rows = part.shape[2], blocks = mxfp4_blocks(cols);
  auto values = std::make_shared<std::vector<uint16_t>>(static_cast<size_t>(part.rows * cols));
  std::vector<uint16_t> row(static_cast<size_t>(blocks * kMxfp4Block));
  const int64_t expert = part.first / (cols * rows), first = part.first % rows;
  for (int64_t r = 0; r < part.rows; ++r) {
    const auto block = static_cast<size_t>((expert * rows + first + r * part.row_step) * blocks);
    decode_mxfp4(checkpoint_->data(codes).data() + block * kMxfp4BlockBytes,
                 checkpoint_->data(scales).data() + block, blocks * kMxfp4Block, row.data());
    std::copy_n(row.begin(), cols, values->begin() + r * cols);
  }
  tensor.data = std::as_bytes(std::span<const uint16_t>(*values));
  tensor.owner = std::move(values);
  return tensor;
}

Tensor CheckpointSource::load(const std::string& name) {
  Tensor tensor = describe(name);
  const TensorInfo& info = find(name);
  const auto found = parts_.find(name);
  if (found != parts_.end()) return part(info, found->second, std::move(tensor));
  if (info.gguf) return load_gguf_rows(checkpoint_, info, codes_, 0, tensor.rows);
  tensor.data = checkpoint_->data(info);
  tensor.owner = checkpoint_;
  return tensor;
}

void CheckpointSource::release(const std::string& name) {
  const auto part = parts_.find(name);
  const TensorInfo* info = checkpoint_->find(part == parts_.end() ? name : part->second.source);
  if (info != nullptr) checkpoint_->drop(*info);
}

}  // namespace walsh
