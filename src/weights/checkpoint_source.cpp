#include "weights/checkpoint_source.h"

#include <array>
#include <cstring>
#include <set>
#include <string_view>
#include <vector>

#include "arch/plan.h"
#include "base/aligned.h"
#include "import/gguf_checkpoint.h"
#include "io/json.h"
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

// What a part counts: rows, elements of a vector.
int64_t& units_of(Tensor& tensor, const TensorInfo& info) {
  return info.shape.size() == 1 ? tensor.cols : tensor.rows;
}

// The rows of heads whose first `turned` ones are stored as pairs, the first of all pairs first.
void separate_pairs(const TensorPart& part, Tensor& tensor) {
  const size_t row_bytes = tensor.data.size() / static_cast<size_t>(part.rows);
  auto memory = std::make_shared<std::vector<std::byte>>(tensor.data.size());
  for (int64_t row = 0; row < part.rows; ++row) {
    const int64_t in_head = row % part.head_dim, half = part.turned / 2;
    int64_t from = row;
    if (in_head < part.turned) from += in_head < half ? in_head : in_head - part.turned + 1;
    std::memcpy(memory->data() + static_cast<size_t>(row) * row_bytes,
                tensor.data.data() + static_cast<size_t>(from) * row_bytes, row_bytes);
  }
  tensor.data = *memory;
  tensor.owner = std::move(memory);
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

// The tensor with the elements r * row_step + c * col_step of `values`.
Tensor pick(Tensor tensor, std::span<const std::byte> values, int64_t row_step, int64_t col_step) {
  const size_t size = dtype_size(tensor.format->dtype);
  auto copy = std::make_shared<AlignedArray<std::byte>>(
      static_cast<size_t>(tensor.rows * tensor.cols) * size);
  std::byte* to = copy->data();
  for (int64_t r = 0; r < tensor.rows; ++r) {
    for (int64_t c = 0; c < tensor.cols; ++c, to += size)
      std::memcpy(to, values.data() + static_cast<size_t>(r * row_step + c * col_step) * size,
                  size);
  }
  tensor.data = {copy->data(), copy->size()};
  tensor.owner = std::move(copy);
  return tensor;
}

// The tensor whose rows are these of a matrix with rows of the same length.
Tensor gather(Tensor tensor, std::span<const std::byte> values,
              std::span<const TensorPart::RowGroups> groups) {
  const size_t row = static_cast<size_t>(tensor.cols) * dtype_size(tensor.format->dtype);
  auto copy = std::make_shared<AlignedArray<std::byte>>(static_cast<size_t>(tensor.rows) * row);
  std::byte* to = copy->data();
  for (const TensorPart::RowGroups& group : groups) {
    const size_t bytes = static_cast<size_t>(group.rows) * row;
    for (int64_t i = 0; i < group.count; ++i, to += bytes)
      std::memcpy(to, values.data() + static_cast<size_t>(group.first + i * group.step) * row,
                  bytes);
  }
  tensor.data = {copy->data(), copy->size()};
  tensor.owner = std::move(copy);
  return tensor;
}

}  // namespace

Checkpoint open_checkpoint(const std::string& path) {
  return complete_checkpoint(is_foreign_gguf(path) ? open_gguf_checkpoint(path)
                                                   : Checkpoint::open(path));
}

Checkpoint complete_checkpoint(Checkpoint checkpoint) {
  const std::string path = checkpoint.folder();
  const std::string where = checkpoint.config_place();
  const ModelPlan plan = read_plan(checkpoint.config_json(), where);
  // What is left out has the names of the text part, which the first rules give.
  std::vector<NameRule> unused;
  for (const std::string& prefix : plan.left_out)
    unused.push_back({prefix, "", true});
  if (!plan.stored_names.empty() || !unused.empty()) {
    size_t others = checkpoint.rename(plan.stored_names);
    others += checkpoint.rename(unused);
    if (others > 0 || !plan.whole.empty())
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

std::string untied_config(std::string_view config_json, const std::string& where) {
  Json config = parse_json(config_json, where);
  if (!config.is_object()) {
    throw Error(ErrorCode::bad_input, where,
                "found " + describe_json(config) + ", expected an object");
  }
  config["tie_word_embeddings"] = false;
  return config.dump(2);
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

CheckpointSource::Place CheckpointSource::place_of(const std::string& name) const {
  const Stored stored = get(name);
  return {stored.part, stored.values->shape};
}

Checksum CheckpointSource::stored_checksum(const std::string& name) const {
  const Stored stored = get(name);
  const auto [known, fresh] = checksums_.try_emplace(stored.values->name);
  if (fresh) known->second = checksum(checkpoint_->data(*stored.values));
  return known->second;
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
  const TensorPart* part = stored.part;
  const bool moved = part != nullptr && (part->turned != 0 || !part->groups.empty());
  return moved ? GgufCodes::drop : codes_;
}

const Format& CheckpointSource::format_of(const std::string& name) const {
  const Stored stored = get(name);
  const TensorInfo& info = *stored.values;
  if (info.gguf) return gguf_format(info, codes_of(stored));
  if (stored.scales == nullptr) return dense_format(info.dtype());
  return dense_format(stored_.kind == StoredQuantization::Kind::fp8 ? DType::f32 : DType::bf16);
}

void CheckpointSource::use_on(const Device& device) {
  if (codes_ != GgufCodes::drop) codes_ = device.cuda ? GgufCodes::symmetric : GgufCodes::keep;
}

std::vector<std::string> CheckpointSource::notes() const {
  std::vector<std::string> notes = checkpoint_->notes();
  const std::string note = codes_ != GgufCodes::drop ? describe_gguf(*checkpoint_, codes_)
                                                     : warn_of_quantized(*checkpoint_);
  if (!note.empty()) notes.push_back(note);
  return notes;
}

StoredArray CheckpointSource::array(const TensorInfo& info) const {
  return {info.dtype_text, info.shape, checkpoint_->data(info), info.where()};
}

Tensor CheckpointSource::describe_whole(const Stored& stored) const {
  const TensorInfo& info = *stored.values;
  std::vector<int64_t> shape = info.shape;
  // A convolution of each channel alone, [channels, 1, taps].
  if (shape.size() == 3 && shape[1] == 1) shape.erase(shape.begin() + 1);
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

Tensor CheckpointSource::describe(const std::string& name) const {
  const Stored stored = get(name);
  if (stored.part != nullptr && !stored.part->shape.empty()) return describe_steps(name, stored);
  Tensor tensor = describe_whole(stored);
  tensor.format = &format_of(name);
  if (stored.part == nullptr) return tensor;
  int64_t& units = units_of(tensor, *stored.values);
  const TensorPart& last = parts_.at(split_.at(stored.part->source).back());
  if (units != last.first_row + last.rows) {
    throw Error(ErrorCode::bad_input, stored.values->where(),
                "found " + std::to_string(units) + " rows, expected " +
                    std::to_string(last.first_row + last.rows));
  }
  units = stored.part->rows;
  return tensor;
}

Tensor CheckpointSource::load_rows(const Stored& stored, Tensor tensor, int64_t first,
                                   int64_t count) const {
  const TensorInfo& info = *stored.values;
  if (info.gguf && info.shape.size() == 1) {
    Tensor whole = load_gguf_rows(checkpoint_, info, codes_of(stored), 0, 1);
    const size_t size = dtype_size(whole.format->dtype);
    whole.data =
        whole.data.subspan(static_cast<size_t>(first) * size, static_cast<size_t>(count) * size);
    whole.cols = count;
    return whole;
  }
  if (info.gguf) return load_gguf_rows(checkpoint_, info, codes_of(stored), first, count);
  if (stored.scales != nullptr && stored_.kind == StoredQuantization::Kind::mxfp4)
    return decode_mxfp4(array(info), array(*stored.scales), first, count);
  if (stored.scales != nullptr) {
    Tensor whole = decode_fp8(array(info), array(*stored.scales), stored_);
    tensor.data = whole.data;
    tensor.owner = whole.owner;
  } else {
    tensor.data = checkpoint_->data(info);
    tensor.owner = checkpoint_;
  }
  const size_t unit_bytes =
      static_cast<size_t>(tensor_bytes(*tensor.format, 1, tensor.rows * tensor.cols)) /
      static_cast<size_t>(count);
  tensor.data = tensor.data.subspan(static_cast<size_t>(first) * unit_bytes,
                                    static_cast<size_t>(count) * unit_bytes);
  return tensor;
}

// A part with a shape. In MXFP4 [experts, n, k] is stored as the matrices of experts times k rows.
Tensor CheckpointSource::describe_steps(const std::string& name, const Stored& stored) const {
  const TensorPart& part = *stored.part;
  const TensorInfo& info = *stored.values;
  std::vector<int64_t> expected = part.shape;
  const bool fp8_rows = stored_.kind == StoredQuantization::Kind::fp8 && !part.groups.empty();
  if (stored.scales != nullptr && !fp8_rows) {
    const bool turned = expected.size() == 3 && part.col_step == expected[2];
    if (!turned || expected[1] % kMxfp4Group != 0 || info.gguf ||
        stored_.kind != StoredQuantization::Kind::mxfp4) {
      throw Error(ErrorCode::bad_input, info.where(),
                  "scales beside a tensor of several matrices are not supported");
    }
    expected = {part.shape[0], part.shape[2], part.shape[1] / kMxfp4Group, kMxfp4Group / 2};
  }
  if (info.shape != expected) {
    throw Error(ErrorCode::bad_input, info.where(),
                "shape is " + shape_text(info.shape) + ", expected " + shape_text(expected));
  }
  Tensor tensor;
  tensor.rows = part.rows;
  tensor.cols = part.cols;
  tensor.format = &format_of(name);
  return tensor;
}

Tensor CheckpointSource::load_steps(const Stored& stored, Tensor tensor) const {
  const TensorPart& part = *stored.part;
  const TensorInfo& info = *stored.values;
  if (!part.groups.empty()) {
    Tensor whole = tensor;
    whole.rows = part.shape[0];
    whole = load_rows(stored, std::move(whole), 0, part.shape[0]);
    return gather(std::move(tensor), whole.data, part.groups);
  }
  const bool rows = part.col_step == 1 && (part.row_step == part.cols || part.rows == 1);
  if (info.gguf) {
    if (rows) return load_gguf_rows(checkpoint_, info, codes_, part.first / part.cols, part.rows);
    throw Error(ErrorCode::bad_input, info.where(), "its order is not known in a GGUF file");
  }
  const size_t size = dtype_size(tensor.format->dtype);
  if (stored.scales != nullptr) {
    const int64_t n = part.shape[1], k = part.shape[2];
    const Tensor expert =
        decode_mxfp4(array(info), array(*stored.scales), part.first / (n * k) * k, k);
    return pick(tensor, expert.data.subspan(static_cast<size_t>(part.first % k * n) * size),
                part.row_step * n, 1);
  }
  const std::span<const std::byte> values =
      checkpoint_->data(info).subspan(static_cast<size_t>(part.first) * size);
  if (!rows) return pick(tensor, values, part.row_step, part.col_step);
  tensor.data = values.first(static_cast<size_t>(part.rows * part.cols) * size);
  tensor.owner = checkpoint_;
  return tensor;
}

Tensor CheckpointSource::load(const std::string& name) {
  const Stored stored = get(name);
  Tensor tensor = describe(name);
  if (stored.part != nullptr && !stored.part->shape.empty())
    return load_steps(stored, std::move(tensor));
  const int64_t first = stored.part != nullptr ? stored.part->first_row : 0;
  const int64_t count = units_of(tensor, *stored.values);
  tensor = load_rows(stored, std::move(tensor), first, count);
  if (stored.part != nullptr && stored.part->turned != 0) separate_pairs(*stored.part, tensor);
  return tensor;
}

void CheckpointSource::release(const std::string& name) {
  const Stored stored = find(name);
  if (stored.values != nullptr) checkpoint_->drop(*stored.values);
}

}  // namespace walsh
