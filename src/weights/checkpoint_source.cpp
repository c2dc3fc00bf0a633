#include "weights/checkpoint_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "arch/plan.h"
#include "base/aligned.h"
#include "import/gguf_checkpoint.h"
#include "io/json.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Returns whether these values are stored in this way.
bool fits(const Checkpoint& checkpoint, const StoredNames& form, const std::string& stem,
          const TensorInfo& values) {
  if (!form.dtype.empty() && values.dtype_text != form.dtype) return false;
  return form.beside.empty() || StoredParts(checkpoint, stem).contains(form.beside);
}

// Returns the tensor of the checkpoint that holds `name`, and, if it is quantized, how.
std::pair<const TensorInfo*, const StoredNames*> find_stored(const Checkpoint& checkpoint,
                                                             const StoredMethod& stored,
                                                             const std::string& name) {
  const StoredKind* kind = stored_kind(stored.kind);
  for (const StoredNames& form : kind != nullptr ? kind->forms : std::span<const StoredNames>()) {
    if (!name.ends_with(form.whole)) continue;
    const std::string stem = name.substr(0, name.size() - form.whole.size());
    const TensorInfo* values = checkpoint.find(stem + std::string(form.values));
    if (values != nullptr && fits(checkpoint, form, stem, *values)) return {values, &form};
  }
  return {checkpoint.find(name), nullptr};
}

// Tools for GPTQ write biases of zeros to models that have none.
bool is_zero_bias(const Checkpoint& checkpoint, const TensorInfo& info) {
  constexpr std::string_view kBias = ".bias";
  if (!info.name.ends_with(kBias)) return false;
  const std::string stem = info.name.substr(0, info.name.size() - kBias.size());
  if (checkpoint.find(stem + ".qweight") == nullptr) return false;
  return std::ranges::all_of(checkpoint.data(info), [](std::byte b) { return b == std::byte{0}; });
}

// Separates the pairs as which the first `turned` rows of each head are stored, so that the first
// rows of all pairs come first.
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

// Returns the note about tensors that no text needs.
std::string left_out(const ModelPlan& plan, size_t tensors) {
  if (plan.whole.empty())
    return std::to_string(tensors) + " tensors that no text needs are left out";
  return "the text part of a " + plan.whole + " is read, " + std::to_string(tensors) +
         " tensors of its other parts are left out";
}

// The tensors of a model that was saved without its head, as models for embeddings are, lack this
// prefix in their names; all other names are the usual ones.
constexpr std::string_view kBase = "model.";
constexpr std::array<NameRule, 1> kBaseNames = {{{"", kBase}}};

// Returns config.json with a head that is tied to the embedding, or with one that is not.
std::string with_head(std::string_view config_json, const std::string& where, bool tied) {
  Json config = parse_json(config_json, where);
  if (!config.is_object()) {
    throw Error(ErrorCode::bad_input, where,
                "found " + describe_json(config) + ", expected an object");
  }
  config["tie_word_embeddings"] = tied;
  return config.dump(2);
}

bool is_base(const Checkpoint& checkpoint, const ModelPlan& plan) {
  return plan.stored_names.empty() && plan.embedding.starts_with(kBase) &&
         checkpoint.find(plan.embedding) == nullptr &&
         checkpoint.find(plan.embedding.substr(kBase.size())) != nullptr &&
         checkpoint.find(plan.residual.head) == nullptr;
}

bool equal(const Checkpoint& checkpoint, const TensorInfo& a, const TensorInfo& b) {
  if (a.dtype_text != b.dtype_text || a.shape != b.shape) return false;
  const auto x = checkpoint.data(a), y = checkpoint.data(b);
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size()) == 0;
}

// Returns the tensor with the elements r * row_step + c * col_step of `values`.
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

// Returns the tensor with the rows in `groups` of a matrix whose rows have the same length.
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
  if (is_base(checkpoint, plan)) {
    checkpoint.rename(kBaseNames);
    if (!plan.head.empty()) {
      checkpoint.correct_config(with_head(checkpoint.config_json(), where, true),
                                path +
                                    ": has no output head: the embedding stands in for it, so "
                                    "that it gives embeddings, and texts without sense");
    }
    return checkpoint;
  }
  // Tensors that are left out have the names of the text part, which the first rules give.
  std::vector<NameRule> unused;
  for (const std::string& prefix : plan.left_out)
    unused.push_back({prefix, "", true});
  if (!plan.stored_names.empty() || !unused.empty()) {
    size_t others = checkpoint.rename(plan.stored_names);
    others += checkpoint.rename(unused);
    if (others > 0 || !plan.whole.empty())
      checkpoint.add_note(path + ": " + left_out(plan, others));
  }
  const bool tied = plan.head.empty();
  const auto [head, form] = tied ? find_stored(checkpoint, plan.stored, plan.residual.head)
                                 : std::pair<const TensorInfo*, const StoredNames*>();
  const TensorInfo* embedding = checkpoint.find(plan.embedding);
  if (head == nullptr || embedding == nullptr ||
      (form == nullptr && equal(checkpoint, *head, *embedding))) {
    return checkpoint;
  }
  checkpoint.correct_config(untied_config(checkpoint.config_json(), where),
                            where + ": ties the output head to the embedding, but " + head->name +
                                " differs from " + embedding->name + ": it is used");
  return checkpoint;
}

std::string untied_config(std::string_view config_json, const std::string& where) {
  return with_head(config_json, where, false);
}

CheckpointSource::CheckpointSource(Checkpoint checkpoint, const std::vector<TensorPart>& parts,
                                   const StoredMethod& stored, GgufCodes codes)
    : checkpoint_(std::make_shared<Checkpoint>(std::move(checkpoint))),
      method_(stored),
      codes_(codes) {
  std::set<std::string_view> apart;  // these sources are absent, but their parts are there
  for (const TensorPart& part : parts) {
    if (find_stored(*checkpoint_, method_, part.source).first == nullptr &&
        find_stored(*checkpoint_, method_, part.name).first != nullptr)
      apart.insert(part.source);
  }
  for (const TensorPart& part : parts) {
    if (apart.contains(part.source)) continue;
    const auto [there, is_new] = parts_.try_emplace(part.name, part);
    if (is_new) {
      split_[part.source].push_back(part.name);
    } else if (const TensorInfo* source = find_stored(*checkpoint_, method_, part.source).first;
               source != nullptr && source->shape == part.shape) {
      there->second = part;
    }
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
  std::tie(found.values, found.form) =
      find_stored(*checkpoint_, method_, found.part != nullptr ? found.part->source : name);
  return found;
}

CheckpointSource::Stored CheckpointSource::get(const std::string& name) const {
  const Stored found = find(name);
  if (found.values != nullptr) return found;
  throw Error(ErrorCode::bad_input,
              path() + ": tensor " + (found.part != nullptr ? found.part->source : name),
              "the checkpoint lacks this tensor");
}

std::string CheckpointSource::stem_of(const Stored& stored) {
  const std::string& name = stored.values->name;
  return name.substr(0, name.size() - stored.form->values.size());
}

StoredMatrixPtr CheckpointSource::open(const Stored& stored) const {
  return stored.form->open(StoredParts(*checkpoint_, stem_of(stored)), method_);
}

bool CheckpointSource::contains(const std::string& name) const {
  return find(name).values != nullptr;
}

std::string CheckpointSource::name_of(const TensorInfo& info) const {
  const StoredKind* kind = stored_kind(method_.kind);
  if (kind == nullptr) return info.name;
  const std::string_view name = info.name;
  for (const std::string_view ending : kind->unseen)
    if (name.ends_with(ending)) return {};
  if (is_zero_bias(*checkpoint_, info)) return {};
  for (const StoredNames& form : kind->forms) {
    if (!name.ends_with(form.values)) continue;
    const std::string stem(name.substr(0, name.size() - form.values.size()));
    if (fits(*checkpoint_, form, stem, info)) return stem + std::string(form.whole);
  }
  return info.name;
}

CheckpointSource::Place CheckpointSource::place_of(const std::string& name) const {
  const Stored stored = get(name);
  if (stored.form == nullptr || stored.form->turned_experts)
    return {stored.part, stored.values->shape};
  const StoredMatrixPtr matrix = open(stored);
  return {stored.part, {matrix->rows(), matrix->cols()}};
}

Checksum CheckpointSource::stored_checksum(const std::string& name) const {
  const Stored stored = get(name);
  const auto [known, fresh] = checksums_.try_emplace(stored.values->name);
  if (!fresh) return known->second;
  const auto sum = [&](const TensorInfo& info) { return checksum(checkpoint_->data(info)); };
  known->second = sum(*stored.values);
  std::string all = known->second.hex();
  for (const TensorInfo* info : beside(stored))
    all += sum(*info).hex();
  if (all.size() > known->second.hex().size())
    known->second = checksum(std::as_bytes(std::span(all)));
  return known->second;
}

// Returns the tensors that stand beside quantized values, such as their scales, in the order of
// their names.
std::vector<const TensorInfo*> CheckpointSource::beside(const Stored& stored) const {
  std::vector<const TensorInfo*> found;
  if (stored.form == nullptr) return found;
  for (const std::string_view ending : stored_kind(method_.kind)->unseen) {
    const TensorInfo* info = checkpoint_->find(stem_of(stored) + std::string(ending));
    if (info != nullptr && info != stored.values) found.push_back(info);
  }
  std::ranges::sort(found, {}, &TensorInfo::name);
  return found;
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
  if (stored.form == nullptr) return dense_format(info.dtype());
  const StoredMatrixPtr matrix = open(stored);
  if (codes_of(stored) == GgufCodes::drop) return matrix->dense();
  const auto [known, fresh] = coded_.try_emplace(info.name);
  if (fresh) known->second = matrix->coded();
  return known->second != nullptr ? *known->second : matrix->dense();
}

void CheckpointSource::use_on(const Device& device) {
  if (codes_ != GgufCodes::drop) codes_ = device.cuda ? GgufCodes::symmetric : GgufCodes::keep;
}

std::vector<std::string> CheckpointSource::notes() const {
  std::vector<std::string> notes = checkpoint_->notes();
  const bool dropped = codes_ == GgufCodes::drop;
  const std::string note =
      dropped ? warn_of_quantized(*checkpoint_) : describe_gguf(*checkpoint_, codes_);
  if (!note.empty()) notes.push_back(note);
  if (const StoredKind* kind = stored_kind(method_.kind); kind != nullptr) {
    const std::string matrices = path() + ": its matrices in " + std::string(kind->text);
    notes.push_back(matrices + (kind->exact_codes && !dropped
                                    ? " are q4_0 or q8_0 where these hold them bit for bit, and "
                                      "decoded where not"
                                    : " are decoded while they are read"));
    if (dropped && kind->below_8_bits)
      notes.back() += "; if they are quantized again, their errors remain and new ones are added";
  }
  return notes;
}

Tensor CheckpointSource::describe_whole(const Stored& stored) const {
  const TensorInfo& info = *stored.values;
  std::vector<int64_t> shape = info.shape;
  // A convolution of each channel alone has the shape [channels, 1, taps].
  if (shape.size() == 3 && shape[1] == 1) shape.erase(shape.begin() + 1);
  Tensor tensor;
  if (stored.form != nullptr) {
    const StoredMatrixPtr matrix = open(stored);
    tensor.rows = matrix->rows();
    tensor.cols = matrix->cols();
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

// Returns the size of which a part is a range, which is the number of rows of a matrix and of
// elements of a vector.
int64_t& CheckpointSource::units_of(Tensor& tensor, const Stored& stored) {
  const bool vector = stored.form == nullptr && stored.values->shape.size() == 1;
  return vector ? tensor.cols : tensor.rows;
}

Tensor CheckpointSource::describe(const std::string& name) const {
  const Stored stored = get(name);
  if (stored.part != nullptr && !stored.part->shape.empty()) return describe_steps(name, stored);
  Tensor tensor = describe_whole(stored);
  tensor.format = &format_of(name);
  if (stored.part == nullptr) return tensor;
  int64_t& units = units_of(tensor, stored);
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
  if (stored.form != nullptr) return open(stored)->load(*tensor.format, first, count);
  tensor.data = checkpoint_->data(info);
  tensor.owner = checkpoint_;
  const size_t unit_bytes =
      static_cast<size_t>(tensor_bytes(*tensor.format, 1, tensor.rows * tensor.cols)) /
      static_cast<size_t>(count);
  tensor.data = tensor.data.subspan(static_cast<size_t>(first) * unit_bytes,
                                    static_cast<size_t>(count) * unit_bytes);
  return tensor;
}

// Describes a part with a shape. Quantized matrices have two dimensions, or three if they are those
// of experts.
Tensor CheckpointSource::describe_steps(const std::string& name, const Stored& stored) const {
  const TensorPart& part = *stored.part;
  const TensorInfo& info = *stored.values;
  std::vector<int64_t> expected = part.shape, found = info.shape;
  if (stored.form != nullptr) {
    const StoredMatrixPtr matrix = open(stored);
    found = {matrix->rows(), matrix->cols()};
    const bool turned = expected.size() == 3 && part.col_step == expected[2];
    if (turned && stored.form->turned_experts) {
      expected = {part.shape[0] * part.shape[2], part.shape[1]};
    } else if (part.groups.empty()) {
      throw Error(ErrorCode::bad_input, info.where(),
                  "a quantized tensor of several matrices is not supported");
    }
  }
  if (found != expected) {
    throw Error(ErrorCode::bad_input, info.where(),
                "shape is " + shape_text(found) + ", expected " + shape_text(expected));
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
  if (stored.form != nullptr) {
    const int64_t n = part.shape[1], k = part.shape[2];
    const Tensor expert = open(stored)->load(*tensor.format, part.first / (n * k) * k, k);
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
  const int64_t count = units_of(tensor, stored);
  tensor = load_rows(stored, std::move(tensor), first, count);
  if (stored.part != nullptr && stored.part->turned != 0) separate_pairs(*stored.part, tensor);
  return tensor;
}

void CheckpointSource::release(const std::string& name) {
  const Stored stored = find(name);
  if (stored.values != nullptr) checkpoint_->drop(*stored.values);
}

}  // namespace walsh
