// `walsh devices` lists the devices that can run a model.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/cpu.h"
#include "base/cuda/device.h"
#include "base/physical_cores.h"
#include "base/thread_pool.h"
#include "cli/build_info.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "io/json.h"

namespace walsh::cli {
namespace {

double gib(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

int list_devices(bool json) {
  const std::vector<cuda::DeviceInfo> gpus = cuda::devices();
  if (json) {
    Json list = Json::array();
    list.push_back({{"device", "cpu"},
                    {"isa", isa_name(current_isa())},
                    {"cores", available_cores()},
                    {"cpus", allowed_cpus().size()}});
    for (const cuda::DeviceInfo& d : gpus) {
      list.push_back({{"device", fmt::format("cuda:{}", d.index)},
                      {"name", d.name},
                      {"capability", fmt::format("{}.{}", d.major, d.minor)},
                      {"multiprocessors", d.multiprocessors},
                      {"memory", d.total_bytes},
                      {"free", d.free_bytes}});
    }
    print_result("{}\n", format_json(list, 2));
    return 0;
  }
  print_result("{:<8} {}\n", "cpu", processor_text());
  for (const cuda::DeviceInfo& d : gpus) {
    print_result(
        "{:<8} {}, compute capability {}.{}, {} multiprocessors, {:.1f} of {:.1f} GiB free\n",
        fmt::format("cuda:{}", d.index), d.name, d.major, d.minor, d.multiprocessors,
        gib(d.free_bytes), gib(d.total_bytes));
  }
  if (gpus.empty()) print_result("no GPU: {}\n", cuda::unavailable_reason());
  return 0;
}

}  // namespace

Action add_devices(Command& command) {
  const auto json = std::make_shared<bool>(false);
  command.add("--json", json.get(), "As JSON");
  return [json] { return list_devices(*json); };
}

}  // namespace walsh::cli
