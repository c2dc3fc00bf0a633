#include "cli/build_info.h"

#include <fmt/format.h>

#include "base/cpu.h"
#include "base/cuda/device.h"
#include "base/physical_cores.h"
#include "base/thread_pool.h"
#include "walsh/version.h"
#include "weights/folder_config.h"

namespace walsh::cli {
namespace {

std::string cuda_text() {
  if (!cuda::compiled()) return "not built in";
#ifdef WALSH_CUDA_BUILD
  std::string text = WALSH_CUDA_BUILD;
#else
  std::string text = "built in";
#endif
  const auto devices = cuda::devices();
  if (devices.empty()) return text + "; " + cuda::unavailable_reason();
  for (const cuda::DeviceInfo& d : devices)
    text +=
        fmt::format("; cuda:{} {} (compute capability {}.{})", d.index, d.name, d.major, d.minor);
  return text;
}

}  // namespace

std::string version_text() {
  std::string isas;
  for (const Isa isa : supported_isas())
    isas += fmt::format(" {}", isa_name(isa));
  return fmt::format("walsh {} (file format {}; instruction sets:{})", kVersion, kFileFormatVersion,
                     isas);
}

std::string processor_text() {
  const int cores = available_cores(), cpus = static_cast<int>(allowed_cpus().size());
  return fmt::format("{} cores{}, {}", cores, cpus > cores ? fmt::format(" of {} CPUs", cpus) : "",
                     isa_name(current_isa()));
}

std::string verbose_version_text() {
  std::string text = version_text() + "\n";
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{:<10} {}\n", name, value);
  };
  line("commit", detail::kBuildCommit);
  line("compiler", fmt::format("{}, {}", __VERSION__, WALSH_BUILD_TYPE));
  line("formats",
       fmt::format("files up to version {}, folders up to {}", kFileFormatVersion, kFolderVersion));
  line("processor", processor_text());
  line("CUDA", cuda_text());
  text.pop_back();
  return text;
}

}  // namespace walsh::cli
