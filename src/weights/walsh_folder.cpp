#include "weights/walsh_folder.h"

#include <cstring>
#include <set>

#include "arch/config.h"
#include "base/aligned.h"
#include "codec/codec.h"
#include "codec/retired.h"
#include "codec/tensor.h"
#include "io/printable.h"
#include "walsh/error.h"
#include "weights/row_groups.h"
#include "weights/walsh_file.h"

namespace walsh {
namespace {

constexpr size_t kAlignment = 64;  // the arrays that kernels read have this alignment

[[noreturn]] void refuse(const std::string& where, const std::string& reason) {
  throw Error(ErrorCode::bad_input, where, reason);
}

// Bounds rotations as walsh files do, because a few bytes must not ask for one that takes hours to
// make.
void check_rotations(const FolderConfig& config, const Checkpoint& checkpoint) {
  OrthogonalWork work;
  for (const auto& [name, module] : config.modules) {
    for (int pass = 0; pass < module.format->passes; ++pass)
      work.add(module.rotation[pass], padded_cols(*module.format, module.cols));
  }
  uint64_t bytes = 0;
  for (const TensorInfo& info : checkpoint.tensors())
    bytes += info.bytes;
  if (work.total() <= most_orthogonal_work(bytes)) return;
  refuse(checkpoint.config_place() + ": " + kFolderConfig,
         "so many different qr rotations that making them would take far longer than reading a "
         "folder of this size");
}

// Returns the name of a tensor in the files of the folder.
const std::string& in_folder(const TensorInfo& info) {
  return info.stored_name.empty() ? info.name : info.stored_name;
}

std::string described(const FolderConfig& config) {
  std::set<std::string_view> types;
  for (const auto& [name, module] : config.modules)
    types.insert(module.format->name);
  std::string text;
  for (const std::string_view type : types)
    text += (text.empty() ? "" : ", ") + std::string(type);
  return text;
}

}  // namespace

std::unique_ptr<WalshFolder> WalshFolder::open(const std::string& folder) {
  Checkpoint opened = Checkpoint::open(folder);
  const std::string place = opened.config_place();
  FolderConfig config = read_folder_config(opened.config_json(), place);
  check_rotations(config, opened);
  opened.correct_config(plain_config(opened.config_json(), place),
                        folder + ": its linear layers are coded (" + described(config) + ")");
  std::set<std::string> left_out;  // walsh does not run these parts of the model
  for (const TensorInfo& info : opened.tensors())
    left_out.insert(info.name);
  Checkpoint completed = complete_checkpoint(std::move(opened));
  for (const TensorInfo& info : completed.tensors())
    left_out.erase(in_folder(info));
  const ModelConfig model = parse_config(completed.config_json(), place);
  std::unique_ptr<WalshFolder> result(
      new WalshFolder(std::move(config), CheckpointSource(std::move(completed), model.parts)));
  result->bind_modules(left_out);
  result->add_parts(model.parts);
  return result;
}

// Finds the arrays of every module under the names that the checkpoint has them by.
void WalshFolder::bind_modules(const std::set<std::string>& left_out) {
  std::map<std::string_view, const TensorInfo*> stored;
  for (const TensorInfo& info : checkpoint_->tensors())
    stored[in_folder(info)] = &info;
  for (const auto& [module, form] : config_.modules) {
    Coded coded = {form, {}};
    const auto specs = array_specs(*form.format, form.rows, form.cols);
    if (left_out.contains(stored_name(module, specs.front().suffix))) continue;
    std::string name;
    for (const ArraySpec& spec : specs) {
      const std::string array = stored_name(module, spec.suffix);
      const std::string where = path() + ": tensor " + printable(array);
      const auto found = stored.find(array);
      if (found == stored.end()) refuse(where, "missing");
      const TensorInfo& info = *found->second;
      if (info.dtype_text != "U8" || info.bytes != spec.bytes) {
        refuse(where, "found " + std::to_string(info.bytes) + " bytes of " + info.dtype_text +
                          ", expected " + std::to_string(spec.bytes) + " of U8");
      }
      coded.arrays.push_back(&info);
      name = info.name.substr(0, info.name.size() - spec.suffix.size()) + "weight";
    }
    coded_.emplace(std::move(name), std::move(coded));
  }
}

void WalshFolder::add_parts(const std::vector<TensorPart>& parts) {
  for (const TensorPart& part : parts) {
    const auto whole = coded_.find(part.source);
    if (whole == coded_.end()) continue;
    if (part.name != part.source && coded_.contains(part.name)) continue;
    const StoredModule& form = whole->second.form;
    for (const RowGroups& group : rows_of(part)) {
      if (group.first + (group.count - 1) * group.step + group.rows <= form.rows) continue;
      refuse(path() + ": tensor " + part.source,
             "found " + std::to_string(form.rows) + " rows, too few for " + part.name);
    }
    parts_[part.name] = part;
  }
}

WalshFolder::Found WalshFolder::find(const std::string& name) const {
  if (const auto part = parts_.find(name); part != parts_.end())
    return {&coded_.at(part->second.source), &part->second};
  const auto whole = coded_.find(name);
  return whole == coded_.end() ? Found{} : Found{&whole->second, nullptr};
}

bool WalshFolder::contains(const std::string& name) const {
  return find(name).coded != nullptr || dense_.contains(name);
}

std::vector<std::string> WalshFolder::names() const {
  std::set<std::string> hidden, split;
  for (const auto& [name, coded] : coded_)
    for (const TensorInfo* array : coded.arrays)
      hidden.insert(array->name);
  std::vector<std::string> result;
  for (const auto& [name, part] : parts_) {
    split.insert(part.source);
    result.push_back(name);
  }
  for (const auto& [name, coded] : coded_)
    if (!split.contains(name)) result.push_back(name);
  for (std::string& name : dense_.names())
    if (!hidden.contains(name)) result.push_back(std::move(name));
  return result;
}

std::vector<std::string> WalshFolder::notes() const {
  std::vector<std::string> notes = dense_.notes();
  std::set<std::string_view> names;
  for (const auto& [name, coded] : coded_)
    if (coded.form.format->retired) names.insert(coded.form.format->name);
  if (!names.empty()) notes.push_back(about_retired(path(), names));
  return notes;
}

const Format& WalshFolder::format_of(const std::string& name) const {
  const Found found = find(name);
  return found.coded != nullptr ? loaded_format(*found.coded->form.format) : dense_.format_of(name);
}

StoredForm WalshFolder::form_of(const std::string& name) const {
  const Found found = find(name);
  if (found.coded == nullptr) return dense_.form_of(name);
  const StoredModule& form = found.coded->form;
  return {.format = &loaded_format(*form.format), .rotation = {form.rotation[0], form.rotation[1]}};
}

Tensor WalshFolder::load_whole(const Coded& coded, const std::string& name) const {
  const StoredModule& form = coded.form;
  auto owners = std::make_shared<std::vector<std::shared_ptr<const void>>>();
  owners->push_back(checkpoint_);
  std::vector<std::span<const std::byte>> arrays;
  for (const TensorInfo* info : coded.arrays) {
    std::span<const std::byte> array = checkpoint_->data(*info);
    if (reinterpret_cast<uintptr_t>(array.data()) % kAlignment != 0) {
      auto copy = std::make_shared<AlignedArray<std::byte>>(array.size());
      std::memcpy(copy->data(), array.data(), array.size());
      array = {copy->data(), copy->size()};
      owners->push_back(std::move(copy));
    }
    arrays.push_back(array);
  }
  Tensor tensor;
  tensor.format = form.format;
  tensor.rows = form.rows;
  tensor.cols = form.cols;
  tensor.rotation[0] = form.rotation[0];
  tensor.rotation[1] = form.rotation[1];
  tensor.owner = std::move(owners);
  bind_arrays(tensor, arrays);
  try {
    check_arrays(tensor);
  } catch (const Error& e) {
    refuse(path() + ": tensor " + name, e.reason());
  }
  return tensor;
}

Tensor WalshFolder::load(const std::string& name) {
  const Found found = find(name);
  if (found.coded == nullptr) return dense_.load(name);
  const Tensor whole = load_whole(*found.coded, name);
  if (found.part == nullptr) return loaded_tensor(whole);
  try {
    return loaded_tensor(take_rows(whole, rows_of(*found.part), found.part->rows));
  } catch (const Error& e) {
    refuse(path() + ": tensor " + found.part->source, e.reason());
  }
}

void WalshFolder::release(const std::string& name) {
  const Found found = find(name);
  if (found.coded == nullptr) {
    dense_.release(name);
    return;
  }
  for (const TensorInfo* info : found.coded->arrays)
    checkpoint_->drop(*info);
}

}  // namespace walsh
