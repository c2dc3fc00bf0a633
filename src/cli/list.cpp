// `walsh list` lists the models that Hugging Face's tools have downloaded.
#include <algorithm>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "io/json.h"
#include "io/printable.h"
#include "walsh/error.h"
#include "weights/hub_cache.h"
#include "weights/open.h"

namespace walsh::cli {
namespace {

// Says whether walsh can run a model; `text` says which family it is of, or why not.
struct Verdict {
  bool runs = false;
  std::string text;
};

Verdict verdict(const CachedModel& model) {
  try {
    return {true, "yes, " + read_config(*open_stored(model.folder)).family};
  } catch (const Error& e) {
    return {false, "no: " + e.reason()};
  }
}

int list_models(bool json) {
  const std::vector<CachedModel> models = cached_models();
  if (json) {
    Json list = Json::array();
    for (const CachedModel& model : models)
      list.push_back({{"name", model.name},
                      {"folder", model.folder},
                      {"bytes", model.bytes},
                      {"runs", verdict(model).runs}});
    print_result("{}\n", format_json(list, 2));
    return 0;
  }
  if (models.empty())
    print_result("no models in {}: `hf download ORG/NAME` puts them there\n",
                 one_line(hub_folder()));
  size_t width = 0;
  for (const CachedModel& model : models)
    width = std::max(width, model.name.size());
  for (const CachedModel& model : models)
    print_result("{:<{}}  {:>10}  {}\n", model.name, width, human_bytes(model.bytes),
                 one_line(verdict(model).text));
  return 0;
}

}  // namespace

Action add_list(Command& command) {
  const auto json = std::make_shared<bool>(false);
  command.add("--json", json.get(), "As JSON");
  return [json] { return list_models(*json); };
}

}  // namespace walsh::cli
