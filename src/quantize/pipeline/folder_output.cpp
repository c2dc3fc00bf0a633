// Writes a compressed checkpoint as a Hugging Face folder (docs/formats/folder.md).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "arch/composite.h"
#include "arch/family.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "io/safetensors_writer.h"
#include "io/staged_folder.h"
#include "quantize/pipeline/model_output.h"
#include "walsh/error.h"
#include "walsh/version.h"
#include "weights/folder_config.h"
#include "weights/row_groups.h"
#include "weights/walsh_file.h"

namespace walsh {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";

// Files with these endings hold weights, or list them.
constexpr auto kWeightFiles = std::to_array<std::string_view>(
    {".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf",
     ".h5", ".msgpack", ".onnx"});

[[noreturn]] void refuse(const std::string& where, const std::string& reason) {
  throw Error(ErrorCode::usage, where, reason);
}

const char* safetensors_dtype(DType type) {
  switch (type) {
    case DType::f32:
      return "F32";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
  }
  throw Error(ErrorCode::internal, "", "unknown element type");
}

int64_t elements(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t dim : shape)
    product *= dim;
  return product;
}

// Describes a tensor of the folder, which holds one tensor of the model, or several that the
// checkpoint has in one.
struct Target {
  std::string name;
  const Format* format = nullptr;
  int64_t rows = 0, cols = 0;  // a vector has its elements as rows and 1 column
  Rotation rotation[2];
  std::vector<int64_t> shape;  // only a dense tensor has it

  bool like(const TensorPlan& plan) const {
    return format == plan.format && rotation[0] == plan.rotation[0] &&
           rotation[1] == plan.rotation[1];
  }
};

// Says where a tensor of the model lies in its target.
struct Place {
  size_t target = 0;
  std::vector<RowGroups> rows;  // an empty list means all rows
};

// Says how the tensors of the model become those of the folder.
class FolderLayout {
 public:
  explicit FolderLayout(const Compressor& source) : source_(source) {
    check_recipe(source.recipe());
    for (const TensorPlan& plan : source.tensors())
      add(plan);
  }
  const std::vector<Target>& targets() const { return targets_; }
  const Place& place(const TensorPlan& plan) const { return places_.at(plan.name); }

 private:
  static void check_recipe(const Recipe& recipe) {
    if (recipe.rotate != RotateAt::input)
      refuse("--rotate",
             "a folder has no place for rotations of outputs or of the residual "
             "stream: only --rotate input");
    if (recipe.embed_type != nullptr && !recipe.embed_type->dense)
      refuse("--embed-type", "a folder has its embedding as it is: leave it out");
  }

  void add(const TensorPlan& plan) {
    const CheckpointSource::Place stored = source_.place_of(plan.name);
    const bool embedding = source_.is_looked_up(plan);
    if (!plan.format->dense && (embedding || module_of(plan.name).empty()))
      refuse(plan.name, "cannot be coded in a folder: let it stay as it is (--ignore)");
    const TensorPart* part = merged_part(plan, stored);
    Target target = {part != nullptr ? part->source : plan.name, plan.format, plan.rows, plan.cols,
                     {plan.rotation[0], plan.rotation[1]},       {}};
    Place place;
    if (part != nullptr) {
      place.rows = rows_of(*part);
      if (plan.rows == 1 && stored.shape.size() == 1) target.cols = 1;
      target.rows =
          part->shape.empty() ? stored.shape.front() : elements(part->shape) / part->shape.back();
      if (const auto known = by_name_.find(target.name); known != by_name_.end()) {
        place.target = known->second;
        join(plan, targets_[known->second]);
        places_.emplace(plan.name, std::move(place));
        return;
      }
      check_cut(plan);
    }
    target.shape = stored.shape;
    if (elements(target.shape) != target.rows * target.cols)
      target.shape = plan.rows == 1 ? std::vector{plan.cols} : std::vector{plan.rows, plan.cols};
    place.target = targets_.size();
    by_name_[target.name] = targets_.size();
    targets_.push_back(std::move(target));
    places_.emplace(plan.name, std::move(place));
  }

  // Returns the part of a larger tensor as which this one is written, or null where it stands by
  // itself. Coded experts are layers of their own.
  const TensorPart* merged_part(const TensorPlan& plan, const CheckpointSource::Place& stored) {
    const TensorPart* part = stored.part;
    if (part == nullptr) return nullptr;
    if (part->shape.empty() || !part->groups.empty()) return part;
    if (!plan.format->dense || plan.rows == 1) return nullptr;
    const bool in_rows = part->col_step == 1 && part->row_step == part->cols;
    if (in_rows) return part;
    refuse(plan.name, "experts that this model stores across cannot stay as they are in a folder");
  }

  void join(const TensorPlan& plan, const Target& target) const {
    if (target.like(plan)) return;
    refuse(plan.name, fmt::format("is part of {} and cannot be {} where that is {}: a rule must "
                                  "take all parts",
                                  target.name, plan.format->name, target.format->name));
  }

  // Refuses arrays that do not have one row per row of the matrix: they cannot be put below each
  // other.
  static void check_cut(const TensorPlan& plan) {
    const Format& format = *plan.format;
    bool cut = true;
    for (int pass = 0; pass < format.passes; ++pass)
      for (const PassField& field : pass_fields(format, pass, plan.rows, plan.cols))
        cut &= field.matrix_rows == 1;
    if (cut) return;
    refuse(plan.name, fmt::format("is fused with others or in another order there, for which {} "
                                  "cannot be cut: use a tq or itq type, or write a file",
                                  format.name));
  }

  const Compressor& source_;
  std::vector<Target> targets_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, Place> places_;
};

// Returns the config of the model, or that of the text part alone of a model of several.
OrderedJson config_of(const Compressor& source) {
  const std::string where = source.path() + "/config.json";
  OrderedJson config = parse_ordered_json(source.config_json(), where);
  const Json plain = parse_json(source.config_json(), where);
  if (const Composite* composite = find_composite(plain); composite != nullptr) {
    const Json text = text_config(plain, *composite, where);
    config = parse_ordered_json(text.dump(), where);
    if (const Family* family = find_family(get_string(text, "model_type", where)))
      config["architectures"] = {family->architecture};
  }
  config.erase(kFolderConfig);
  return config;
}

class FolderOutput : public ModelOutput {
 public:
  FolderOutput(Compressor& source, uint64_t shard_bytes) : source_(source), layout_(source) {
    for (const Target& target : layout_.targets())
      add(target, shard_bytes);
  }

  uint64_t bytes() const override {
    uint64_t sum = 0;
    for (const auto& shard : shards_)
      sum += shard->file_size();
    return sum;
  }

  void open(const std::string& path) override {
    folder_.emplace(path);
    folder_->named([&] {
      for (size_t i = 0; i < shards_.size(); ++i)
        shards_[i]->open(folder_->file(shard_name(i)));
    });
  }

  void write(const TensorPlan& plan, size_t array, std::span<const std::byte> bytes,
             uint64_t offset) override {
    const Place& place = layout_.place(plan);
    const Target& target = layout_.targets()[place.target];
    const ArraySpec spec = array_specs(*plan.format, plan.rows, plan.cols).at(array);
    const std::string name = array_name(target, spec);
    SafetensorsWriter& shard = *shards_[shard_of_.at(name)];
    folder_->named([&] {
      if (place.rows.empty()) {
        shard.write(name, bytes, offset);
        return;
      }
      const uint64_t units = plan.rows == 1 ? static_cast<uint64_t>(plan.cols) : spec.rows;
      write_rows(shard, name, place.rows, spec.bytes / units, bytes, offset);
    });
  }

  void commit(const WrittenTensors& /*written*/) override {
    folder_->named([&] {
      for (const auto& shard : shards_)
        shard->commit();
      write_index();
      copy_files();
      write_config();
    });
    folder_->commit();
  }

 private:
  static std::string array_name(const Target& target, const ArraySpec& spec) {
    return target.format->dense ? target.name : stored_name(module_of(target.name), spec.suffix);
  }

  void add(const Target& target, uint64_t shard_bytes) {
    const auto specs = array_specs(*target.format, target.rows, target.cols);
    uint64_t bytes = 0;
    for (const ArraySpec& spec : specs)
      bytes += spec.bytes;
    const bool full = !shards_.empty() && shards_.back()->data_size() + bytes > shard_bytes;
    if (shards_.empty() || full) shards_.push_back(std::make_unique<SafetensorsWriter>());
    for (const ArraySpec& spec : specs) {
      const std::string name = array_name(target, spec);
      shard_of_[name] = shards_.size() - 1;
      if (target.format->dense) {
        shards_.back()->add(name, safetensors_dtype(target.format->dtype), target.shape);
      } else {
        shards_.back()->add(
            name, "U8",
            {static_cast<int64_t>(spec.rows), static_cast<int64_t>(spec.bytes / spec.rows)});
      }
    }
  }

  // Writes `bytes`, which begin at `offset` of an array whose rows are those of `groups` in a
  // larger one.
  static void write_rows(SafetensorsWriter& shard, const std::string& name,
                         const std::vector<RowGroups>& groups, uint64_t row_bytes,
                         std::span<const std::byte> bytes, uint64_t offset) {
    uint64_t begin = 0;  // the group begins here in the array
    const uint64_t last = offset + bytes.size();
    for (const RowGroups& group : groups) {
      const uint64_t size = static_cast<uint64_t>(group.rows) * row_bytes;
      for (int64_t i = 0; i < group.count; ++i, begin += size) {
        const uint64_t from = std::max(begin, offset), to = std::min(begin + size, last);
        if (from >= to) continue;
        const auto row = static_cast<uint64_t>(group.first + i * group.step);
        shard.write(name, bytes.subspan(from - offset, to - from), row * row_bytes + from - begin);
      }
    }
  }

  std::string shard_name(size_t index) const {
    if (shards_.size() == 1) return "model.safetensors";
    return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, shards_.size());
  }

  void write_index() const {
    if (shards_.size() == 1) return;
    uint64_t total = 0;
    OrderedJson map = OrderedJson::object();
    for (size_t i = 0; i < shards_.size(); ++i) {
      total += shards_[i]->data_size();
      for (const std::string& name : shards_[i]->names())
        map[name] = shard_name(i);
    }
    const OrderedJson index = {{"metadata", {{"total_size", total}}},
                               {"weight_map", std::move(map)}};
    write_file(folder_->file(kIndexName), format_json(index, 2) + "\n");
  }

  // Copies the files beside the weights, such as the tokenizer and its texts, a licence and a card.
  void copy_files() const {
    std::error_code error;
    if (!fs::is_directory(source_.path(), error)) {
      write_text("tokenizer.json", source_.tokenizer_json());
      write_text("tokenizer_config.json", source_.tokenizer_config_json());
      write_text("generation_config.json", source_.generation_config_json());
      return;
    }
    for (const auto& entry : fs::directory_iterator(source_.path())) {
      const std::string name = entry.path().filename().string();
      const bool weights = std::any_of(kWeightFiles.begin(), kWeightFiles.end(),
                                       [&](std::string_view end) { return name.ends_with(end); });
      if (weights || name.starts_with('.') || name == "config.json" || !entry.is_regular_file())
        continue;
      const MappedFile file(entry.path().string());
      AtomicFile copy(folder_->file(name), file.bytes().size());
      copy.append(file.bytes());
      copy.commit();
    }
  }

  void write_text(const std::string& name, std::string_view text) const {
    if (!text.empty()) write_file(folder_->file(name), text);
  }

  void write_config() const {
    OrderedJson config = config_of(source_);
    std::map<std::string, StoredModule> modules;
    for (const Target& t : layout_.targets()) {
      if (t.format->dense) continue;
      modules[module_of(t.name)] = {t.format, t.rows, t.cols, {t.rotation[0], t.rotation[1]}};
    }
    if (!modules.empty()) config[kFolderConfig] = quantization(modules);
    write_file(folder_->file("config.json"), format_json(config, 2) + "\n");
  }

  OrderedJson quantization(const std::map<std::string, StoredModule>& modules) const {
    const Recipe& recipe = source_.recipe();
    const Format& type = recipe.type->dense ? *modules.begin()->second.format : *recipe.type;
    return {{"quant_method", kFolderMethod},
            {"format_version", kFolderVersion},
            {"producer", std::string("walsh ") + kVersion},
            {"type", type.name},
            {"rotation", rotation_kind_name(recipe.rotation)},
            {"block", recipe.block},
            {"seed", recipe.seed},
            {"ignore", OrderedJson::array({"lm_head"})},
            {"recipe", parse_ordered_json(recipe_json(recipe), "recipe")},
            {"modules", modules_json(modules)}};
  }

  Compressor& source_;
  FolderLayout layout_;
  std::vector<std::unique_ptr<SafetensorsWriter>> shards_;
  std::map<std::string, size_t> shard_of_;  // its keys are the names of arrays
  std::optional<StagedFolder> folder_;
};

}  // namespace

std::unique_ptr<ModelOutput> make_folder_output(Compressor& source, uint64_t shard_bytes) {
  return std::make_unique<FolderOutput>(source, shard_bytes);
}

}  // namespace walsh
