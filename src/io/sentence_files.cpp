#include "io/sentence_files.h"

#include <array>
#include <filesystem>
#include <system_error>

#include "io/json.h"
#include "io/mapped_file.h"
#include "io/printable.h"

namespace walsh {
namespace {

constexpr uint64_t kMostBytes = 1 << 20;

[[noreturn]] void refuse(const std::string& where, const std::string& reason) {
  throw Error(ErrorCode::bad_input, where, reason);
}

// sentence-transformers names a pooling by a flag or by a value of pooling_mode; `own` is walsh's
// name, or null where walsh does not have it.
struct PoolingName {
  const char *flag, *mode, *own;
};
constexpr std::array<PoolingName, 6> kPoolings = {
    {{"pooling_mode_lasttoken", "lasttoken", "last"},
     {"pooling_mode_mean_tokens", "mean", "mean"},
     {"pooling_mode_cls_token", "cls", "cls"},
     {"pooling_mode_max_tokens", "max", nullptr},
     {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", nullptr},
     {"pooling_mode_weightedmean_tokens", "weightedmean", nullptr}}};

std::string pooling_of(const std::string& text, const std::string& where) {
  const Json config = parse_json(text, where);
  if (!config.is_object()) refuse(where, "expected an object");
  const auto mode = find_string(config, "pooling_mode", where);
  std::string found;
  for (const PoolingName& name : kPoolings) {
    if (!(mode ? *mode == name.mode : find_bool(config, name.flag, where).value_or(false)))
      continue;
    if (name.own == nullptr)
      refuse(where, std::string("its pooling is ") + name.mode +
                        ", but only the last token, the first one and the mean can be taken");
    if (!found.empty()) refuse(where, "several poolings side by side are not supported");
    found = name.own;
  }
  if (found.empty()) refuse(where, "it names no pooling that is known");
  return found;
}

// A module's folder must not lead out of the model's.
void check_folder(const std::string& path, const std::string& where) {
  if (path.find('/') == std::string::npos && path.find('\\') == std::string::npos && path != ".." &&
      path != "." && !path.empty() && path.find('\0') == std::string::npos)
    return;
  refuse(where, "module \"" + printable(path) + "\" is not a plain name of a folder");
}

}  // namespace

std::string embedding_of_folder(const std::string& folder) {
  const std::string where = folder + "/modules.json";
  std::error_code unreadable;
  if (!std::filesystem::exists(where, unreadable)) return {};
  const Json list = parse_json(read_text_file(where, kMostBytes), where);
  if (!list.is_array()) refuse(where, "found " + describe_json(list) + ", expected a list");
  std::string pooling;
  bool normalize = false;
  for (const Json& module : list) {
    if (!module.is_object()) refuse(where, "found " + describe_json(module) + " in the list");
    const std::string type = get_string(module, "type", where);
    const std::string kind = type.substr(type.rfind('.') + 1);
    if (kind == "Transformer") continue;
    if (kind == "Normalize") {
      normalize = true;
    } else if (kind == "Pooling") {
      const std::string path = get_string(module, "path", where);
      check_folder(path, where);
      const std::string file = folder + "/" + path + "/config.json";
      pooling = pooling_of(read_text_file(file, kMostBytes), file);
    } else {
      refuse(where, "has a module " + printable(type) +
                        ", but only Transformer, Pooling and Normalize are supported");
    }
  }
  if (pooling.empty()) refuse(where, "has no module that pools");
  return Json{{"pooling", pooling}, {"normalize", normalize}}.dump();
}

}  // namespace walsh
