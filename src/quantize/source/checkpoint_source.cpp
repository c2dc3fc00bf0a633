#include "quantize/source/checkpoint_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "arch/plan.h"
#include "base/aligned.h"
#include "import/gguf_checkpoint.h"
#include "quantize/source/fold.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Types and names of stored quantization (arch/stored_quantization.h).
constexpr std::string_view kFp8 = "F8_E4M3";
constexpr const char* kFp8Scales = "_scale_inv";
constexpr const char* kMxBlocks = "_blocks";
constexpr const char* kMxScales = "_scales";
constexpr int64_t kMxGroup = 32;  // columns of a scale
// Beside matrices in FP8: their scales, and those of activations, which are not rounded here.
constexpr std::array<std::string_view, 3> kFp8Others = {"_scale_inv", ".activation_scale",
                                                        ".input_scale"};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// Rows (elements of a vector) that follow each other in what they are a part of.
bool is_range(const TensorPart& part) {
  return part.col_step == 1 && (part.row_step == part.cols || part.rows == 1);
}

// The rows of heads whose first `turned` ones are stored as pairs, the first of all pairs first.
void separate_pairs(const TensorPart& part, Tensor& tensor) {
  const int64_t rows = tensor.rows == 1 ? tensor.cols : tensor.rows;
  const size_t row_bytes = tensor.data.size() / static_cast<size_t>(rows);
  auto memory = std::make_shared<std::vector<std::byte>>(tensor.data.size());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t in_head = row % part.head_dim, half = part.turned / 2;
    int64_t from = row;
    if (in_head < part.turned) from += in_head < half ? in_head : in_head - part.turned + 1;
    std::memcpy(memory->data() + static_cast<size_t>(row) * row_bytes,
                tensor.data.data() + static_cast<size_t>(from) * row_bytes, row_bytes);
  }
  tensor.data = *memory;
  tensor.owner = std::move(memory);
}

// The values of a part of a dense tensor `whole`; in place where they follow each other.
Tensor take_part(const TensorPart& part, const Tensor& whole, Tensor tensor) {
  const size_t size = dtype_size(whole.format->dtype);
  const auto from = whole.data.subspan(static_cast<size_t>(part.first) * size);
  const size_t bytes = static_cast<size_t>(part.rows * part.cols) * size;
  if (is_range(part)) {
    tensor.data = from.first(bytes);
    tensor.owner = whole.owner;
    return tensor;
  }
  auto copy = std::make_shared<AlignedArray<std::byte>>(bytes);
  std::byte* to = copy->data();
  for (int64_t r = 0; r < part.rows; ++r) {
    for (int64_t c = 0; c < part.cols; ++c, to += size) {
      const auto at = static_cast<size_t>(r * part.row_step + c * part.col_step) * size;
      std::memcpy(to, from.data() + at, size);
    }
  }
  tensor.data = {copy->data(), copy->size()};
  tensor.owner = copy;
  return tensor;
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
  Checkpoint checkpoint =
      is_foreign_gguf(path) ? open_gguf_checkpoint(path) : Checkpoint::open(path);
  const std::string where = checkpoint.config_place();
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
                                   const StoredQuantization& stored, GgufCodes codes)
    : checkpoint_(std::make_shared<Checkpoint>(std::move(checkpoint))),
      stored_(stored),
      codes_(codes) {
  std::set<std::string_view> apart;  // sources that are not there, but their parts by themselves
  for (const TensorPart& part : parts) {
    if (checkpoint_->find(part.source) == nullptr && checkpoint_->find(part.name) != nullptr)
      apart.insert(part.source);
  }
  for (const TensorPart& part : parts) {
    if (apart.contains(part.source)) continue;
    parts_[part.name] = part;
    split_[part.source].push_back(part.name);
  }
}

CheckpointSource CheckpointSource::open(const std::string& folder, GgufCodes codes) {
  Checkpoint checkpoint = open_checkpoint(folder);
  const ModelConfig config = parse_config(checkpoint.config_json(), checkpoint.config_place());
  return CheckpointSource(std::move(checkpoint), config.parts, config.stored, codes);
}

CheckpointSource::Stored CheckpointSource::find(const std::string& name) const {
  Stored found;
  const auto part = parts_.find(name);
  if (part != parts_.end()) found.part = &part->second;
  const std::string& stored = found.part != nullptr ? found.part->source : name;
  found.values = checkpoint_->find(stored);
  if (found.values != nullptr) {
    if (stored_.kind == StoredQuantization::Kind::fp8 && found.values->dtype_text == kFp8)
      found.scales = checkpoint_->find(stored + kFp8Scales);
  } else if (stored_.kind == StoredQuantization::Kind::mxfp4) {
    found.values = checkpoint_->find(stored + kMxBlocks);
    found.scales = checkpoint_->find(stored + kMxScales);
  }
  return found;
}

CheckpointSource::Stored CheckpointSource::get(const std::string& name) const {
  const Stored found = find(name);
  const auto fail = [&](const std::string& suffix) {
    const std::string& stored = found.part != nullptr ? found.part->source : name;
    throw Error(ErrorCode::bad_input, path() + ": tensor " + stored + suffix,
                "the checkpoint lacks this tensor");
  };
  if (found.values == nullptr) fail("");
  if (found.scales != nullptr) return found;
  if (stored_.kind == StoredQuantization::Kind::fp8 && found.values->dtype_text == kFp8)
    fail(kFp8Scales);
  if (stored_.kind == StoredQuantization::Kind::mxfp4 && found.values->name.ends_with(kMxBlocks))
    fail(kMxScales);
  return found;
}

bool CheckpointSource::contains(const std::string& name) const {
  return find(name).values != nullptr;
}

std::string CheckpointSource::name_of(const TensorInfo& info) const {
  const std::string_view name = info.name;
  if (stored_.kind == StoredQuantization::Kind::fp8) {
    for (const std::string_view suffix : kFp8Others)
      if (name.ends_with(suffix)) return {};
  }
  if (stored_.kind == StoredQuantization::Kind::mxfp4) {
    if (name.ends_with(kMxScales)) return {};
    if (name.ends_with(kMxBlocks))
      return std::string(name.substr(0, name.size() - std::string_view(kMxBlocks).size()));
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

GgufCodes CheckpointSource::codes_of(const Stored& stored) const {
  return stored.part != nullptr && stored.part->turned != 0 ? GgufCodes::drop : codes_;
}

const Format& CheckpointSource::format_of(const std::string& name) const {
  const Stored stored = get(name);
  const TensorInfo& info = *stored.values;
  if (info.gguf) return gguf_format(info, codes_of(stored));
  if (stored.scales == nullptr) return dense_format(info.dtype());
  return dense_format(stored_.kind == StoredQuantization::Kind::fp8 ? DType::f32 : DType::bf16);
}

std::vector<std::string> CheckpointSource::notes() const {
  std::vector<std::string> notes = checkpoint_->notes();
  const std::string note = codes_ == GgufCodes::keep ? describe_gguf(*checkpoint_, codes_)
                                                     : warn_of_quantized(*checkpoint_);
  if (!note.empty()) notes.push_back(note);
  return notes;
}

StoredArray CheckpointSource::array(const TensorInfo& info) const {
  return {info.dtype_text, info.shape, checkpoint_->data(info), info.where()};
}

Tensor CheckpointSource::describe_whole(const Stored& stored) const {
  const TensorInfo& info = *stored.values;
  const auto& shape = info.shape;
  Tensor tensor;
  if (stored.scales != nullptr && stored_.kind == StoredQuantization::Kind::mxfp4) {
    tensor.rows = mxfp4_rows(array(info));
    tensor.cols = info.elements() / tensor.rows * 2;
    return tensor;
  }
  if ((shape.size() != 1 && shape.size() != 2) || info.elements() == 0) {
    throw Error(ErrorCode::bad_input, info.where(),
                "rank " + std::to_string(shape.size()) + " with " +
                    std::to_string(info.elements()) +
                    " elements, expected a vector or a matrix that is not empty");
  }
  tensor.rows = shape.size() == 2 ? shape[0] : 1;
  tensor.cols = shape.back();
  return tensor;
}

// Experts in MXFP4 are coded row by row, where others have their columns first.
void CheckpointSource::check_part(const TensorInfo& info, const TensorPart& part) const {
  std::vector<int64_t> expected = part.shape;
  if (info.name.ends_with(kMxBlocks) && expected.size() == 3) {
    if (part.col_step != 1) std::swap(expected[1], expected[2]);
    expected[2] = (expected[2] + kMxGroup - 1) / kMxGroup;
    expected.push_back(kMxGroup / 2);
  }
  if (info.shape == expected) return;
  throw Error(ErrorCode::bad_input, info.where(),
              "shape is " + shape_text(info.shape) + ", expected " + shape_text(expected));
}

Tensor CheckpointSource::describe(const std::string& name) const {
  const Stored stored = get(name);
  Tensor tensor;
  if (stored.part == nullptr) {
    tensor = describe_whole(stored);
  } else {
    check_part(*stored.values, *stored.part);
    tensor.rows = stored.part->rows;
    tensor.cols = stored.part->cols;
  }
  tensor.format = &format_of(name);
  return tensor;
}

Tensor CheckpointSource::load_whole(const Stored& stored, Tensor tensor) const {
  const TensorInfo& info = *stored.values;
  if (info.gguf) return load_gguf_rows(checkpoint_, info, codes_of(stored), 0, tensor.rows);
  if (stored.scales == nullptr) {
    tensor.data = checkpoint_->data(info);
    tensor.owner = checkpoint_;
    return tensor;
  }
  if (stored_.kind == StoredQuantization::Kind::mxfp4)
    return decode_mxfp4(array(info), array(*stored.scales), 0, tensor.rows);
  return decode_fp8(array(info), array(*stored.scales), stored_);
}

Tensor CheckpointSource::load_mxfp4_part(const Stored& stored, Tensor tensor) const {
  const TensorPart& part = *stored.part;
  // One row after the other: gate and up alternate, and the last group may be padded.
  const int64_t rows = part.shape[part.col_step == 1 ? 1 : 2];
  const int64_t expert = part.first / (part.shape[1] * part.shape[2]);
  const int64_t within = part.first % (part.shape[1] * part.shape[2]);
  const int64_t first = part.col_step == 1 ? within / part.cols : within;
  const int64_t step = part.col_step == 1 ? part.row_step / part.cols : part.row_step;
  const auto row_bytes = static_cast<size_t>(part.cols) * sizeof(uint16_t);
  auto copy = std::make_shared<AlignedArray<std::byte>>(static_cast<size_t>(part.rows) * row_bytes);
  for (int64_t r = 0; r < part.rows; ++r) {
    const Tensor row = decode_mxfp4(array(*stored.values), array(*stored.scales),
                                    expert * rows + first + r * step, 1);
    std::memcpy(copy->data() + static_cast<size_t>(r) * row_bytes, row.data.data(), row_bytes);
  }
  tensor.data = {copy->data(), copy->size()};
  tensor.owner = copy;
  return tensor;
}

Tensor CheckpointSource::load_part(const Stored& stored, Tensor tensor) const {
  const TensorInfo& info = *stored.values;
  const TensorPart& part = *stored.part;
  if (stored.scales != nullptr && stored_.kind == StoredQuantization::Kind::mxfp4)
    return load_mxfp4_part(stored, std::move(tensor));
  if (info.gguf && info.shape.size() > 1 && is_range(part))
    return load_gguf_rows(checkpoint_, info, codes_of(stored), part.first / part.cols, part.rows);
  Stored whole = stored;
  whole.part = nullptr;
  Tensor all;
  all.format = tensor.format;
  all.rows = info.shape.size() == 1 ? 1 : info.elements() / info.shape.back();
  all.cols = info.shape.back();
  return take_part(part, load_whole(whole, std::move(all)), std::move(tensor));
}

Tensor CheckpointSource::load(const std::string& name) {
  const Stored stored = get(name);
  Tensor tensor = describe(name);
  if (stored.part == nullptr) return load_whole(stored, std::move(tensor));
  tensor = load_part(stored, std::move(tensor));
  if (stored.part->turned != 0) separate_pairs(*stored.part, tensor);
  return tensor;
}

void CheckpointSource::release(const std::string& name) {
  const Stored stored = find(name);
  if (stored.values != nullptr) checkpoint_->drop(*stored.values);
}

}  // namespace walsh
