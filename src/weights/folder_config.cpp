#include "weights/folder_config.h"

#include <bit>
#include <filesystem>

#include "codec/tensor.h"
#include "io/mapped_file.h"
#include "io/printable.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr std::string_view kWeight = ".weight";
constexpr int64_t kMostRows = int64_t{1} << 31;
constexpr int64_t kLeastBlock = 32, kMostBlock = 1024;

[[noreturn]] void refuse(const std::string& where, const std::string& reason) {
  throw Error(ErrorCode::bad_input, where, reason);
}

const Json* find_walsh(const Json& config) {
  if (!config.is_object()) return nullptr;
  const auto found = config.find(kFolderConfig);
  if (found == config.end() || !found->is_object()) return nullptr;
  const auto method = found->find("quant_method");
  return method != found->end() && *method == kFolderMethod ? &*found : nullptr;
}

// Reads a rotation, which is written as [kind, block, seed, signs].
Rotation read_rotation(const Json& value, const std::string& where) {
  const bool complete = value.is_array() && value.size() == 4 && value[0].is_string() &&
                        value[1].is_number_unsigned() && value[2].is_number_unsigned() &&
                        value[3].is_boolean();
  if (!complete) refuse(where, "a rotation is [kind, block, seed, signs]");
  const auto block = value[1].get<uint64_t>(), seed = value[2].get<uint64_t>();
  if (block < kLeastBlock || block > kMostBlock || !std::has_single_bit(block) || seed > UINT32_MAX)
    refuse(where, "the rotation is not one that walsh knows");
  try {
    return {parse_rotation_kind(value[0].get_ref<const std::string&>()), static_cast<int>(block),
            static_cast<uint32_t>(seed), value[3].get<bool>()};
  } catch (const Error& e) {
    refuse(where, e.reason());
  }
}

const Format& coded_format(const std::string& name, const std::string& where) {
  const Format* format = nullptr;
  try {
    format = &stored_format(name);
  } catch (const Error& e) {
    refuse(where, e.reason());
  }
  if (format->dense) refuse(where, name + " is no code");
  return *format;
}

StoredModule read_module(const Json& value, const std::string& where) {
  StoredModule module;
  module.format = &coded_format(get_string(value, "type", where), where);
  const Json& shape = get_array(value, "shape", where);
  const auto is_size = [](const Json& n) {
    return n.is_number_unsigned() && n > 0 && n <= kMostRows;
  };
  if (shape.size() != 2 || !is_size(shape[0]) || !is_size(shape[1]))
    refuse(where, "its shape is not [rows, columns]");
  module.rows = shape[0].get<int64_t>();
  module.cols = shape[1].get<int64_t>();
  const Json& rotation = get_array(value, "rotation", where);
  if (rotation.size() != static_cast<size_t>(module.format->passes))
    refuse(where,
           "expected a rotation for each of " + std::to_string(module.format->passes) + " passes");
  for (size_t pass = 0; pass < rotation.size(); ++pass)
    module.rotation[pass] = read_rotation(rotation[pass], where);
  return module;
}

}  // namespace

std::string module_of(std::string_view tensor) {
  if (!tensor.ends_with(kWeight)) return {};
  return std::string(tensor.substr(0, tensor.size() - kWeight.size()));
}

bool is_walsh_config(std::string_view config_json) {
  try {
    return find_walsh(parse_json(config_json, "config.json")) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

bool is_walsh_folder(const std::string& path) {
  const auto config = std::filesystem::path(path) / "config.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(config, error)) return false;
  try {
    return is_walsh_config(read_text_file(config.string(), kMaxConfigBytes));
  } catch (const Error&) {
    return false;  // opening the folder will report the reason
  }
}

FolderConfig read_folder_config(std::string_view config_json, const std::string& where) {
  const Json config = parse_json(config_json, where);
  const Json* own = find_walsh(config);
  const std::string place = where + ": " + kFolderConfig;
  if (own == nullptr) refuse(place, "is not one of walsh");
  if (const int64_t version = get_int(*own, "format_version", place, 1); version > kFolderVersion) {
    refuse(place, "format version " + std::to_string(version) + ", this walsh reads up to " +
                      std::to_string(kFolderVersion));
  }
  FolderConfig result;
  result.producer = find_string(*own, "producer", place).value_or("");
  if (const Json* recipe = find_object(*own, "recipe", place)) result.recipe = recipe->dump();
  for (const auto& [name, value] : get_object(*own, "modules", place).items()) {
    const std::string at = place + ": " + printable(name);
    if (!value.is_object()) refuse(at, "found " + describe_json(value) + ", expected an object");
    result.modules.emplace(name, read_module(value, at));
  }
  return result;
}

std::string plain_config(std::string_view config_json, const std::string& where) {
  OrderedJson config = parse_ordered_json(config_json, where);
  config.erase(kFolderConfig);
  return config.dump(2);
}

OrderedJson modules_json(const std::map<std::string, StoredModule>& modules) {
  OrderedJson result = OrderedJson::object();
  for (const auto& [name, module] : modules) {
    OrderedJson rotations = OrderedJson::array();
    for (int pass = 0; pass < module.format->passes; ++pass) {
      const Rotation& r = module.rotation[pass];
      rotations.push_back({rotation_kind_name(r.kind), r.block, r.seed, r.signs});
    }
    result[name] = {{"type", module.format->name},
                    {"shape", {module.rows, module.cols}},
                    {"rotation", std::move(rotations)}};
  }
  return result;
}

}  // namespace walsh
