#include "quantize/source/checkpoint_source.h"

#include <cstring>

#include "arch/plan.h"
#include "import/gguf_checkpoint.h"
#include "quantize/source/fold.h"
#include "walsh/error.h"

namespace walsh {
namespace {

bool equal(const Checkpoint& checkpoint, const TensorInfo& a, const TensorInfo& b) {
  if (a.dtype_text != b.dtype_text || a.shape != b.shape) return false;
  const auto x = checkpoint.data(a), y = checkpoint.data(b);
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size()) == 0;
}

}  // namespace

Checkpoint open_checkpoint(const std::string& path) {
  Checkpoint checkpoint =
      is_foreign_gguf(path) ? open_gguf_checkpoint(path) : Checkpoint::open(path);
  const std::string where = checkpoint.config_place();
  const ModelPlan plan = read_plan(checkpoint.config_json(), where);
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
  for (const TensorPart& part : parts) {
    parts_[part.name] = part;
    split_[part.source].push_back(part.name);
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
  return info.gguf ? gguf_format(info, codes_) : dense_format(info.dtype());
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

Tensor CheckpointSource::describe(const std::string& name) const {
  const TensorInfo& info = find(name);
  const auto& shape = info.shape;
  if ((shape.size() != 1 && shape.size() != 2) || info.elements() == 0) {
    throw Error(ErrorCode::bad_input, info.where(),
                "rank " + std::to_string(shape.size()) + " with " +
                    std::to_string(info.elements()) +
                    " elements, expected a vector or a matrix that is not empty");
  }
  Tensor tensor;
  tensor.format = &format_of(info);
  tensor.rows = shape.size() == 2 ? shape[0] : 1;
  tensor.cols = shape.back();
  const auto part = parts_.find(name);
  if (part == parts_.end()) return tensor;
  const TensorPart& last = parts_.at(split_.at(part->second.source).back());
  if (tensor.rows != last.first_row + last.rows) {
    throw Error(ErrorCode::bad_input, info.where(),
                "found " + std::to_string(tensor.rows) + " rows, expected " +
                    std::to_string(last.first_row + last.rows));
  }
  tensor.rows = part->second.rows;
  return tensor;
}

Tensor CheckpointSource::load(const std::string& name) {
  Tensor tensor = describe(name);
  const TensorInfo& info = find(name);
  const auto part = parts_.find(name);
  const int64_t first = part == parts_.end() ? 0 : part->second.first_row;
  if (info.gguf) return load_gguf_rows(checkpoint_, info, codes_, first, tensor.rows);
  const uint64_t row_bytes = tensor_bytes(*tensor.format, 1, tensor.cols);
  tensor.data = checkpoint_->data(info).subspan(static_cast<size_t>(first) * row_bytes,
                                                static_cast<size_t>(tensor.rows) * row_bytes);
  tensor.owner = checkpoint_;
  return tensor;
}

void CheckpointSource::release(const std::string& name) {
  const auto part = parts_.find(name);
  const TensorInfo* info = checkpoint_->find(part == parts_.end() ? name : part->second.source);
  if (info != nullptr) checkpoint_->drop(*info);
}

}  // namespace walsh
