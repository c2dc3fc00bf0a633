#include "base/device.h"

#include <charconv>

#include "base/cuda/device.h"
#include "base/cuda/first_device.h"
#include "walsh/error.h"

namespace walsh {

std::string Device::name() const {
  return cuda ? "cuda:" + std::to_string(index) : "cpu";
}

Device parse_device(std::string_view name) {
  if (name == "cpu") return {};
  if (name == "auto") {
    const std::optional<int> found = cuda::first_device();
    return found ? Device{true, *found} : Device{};
  }
  constexpr std::string_view kCuda = "cuda";
  if (name.starts_with(kCuda)) {
    int index = 0;
    std::string_view rest = name.substr(kCuda.size());
    bool valid = rest.empty();
    if (rest.size() > 1 && rest[0] == ':') {
      const auto [end, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), index);
      valid = error == std::errc() && end == rest.data() + rest.size() && index >= 0;
    }
    if (valid) return {true, cuda::use_device(index).index};
  }
  throw Error(ErrorCode::usage, "device",
              "unknown device '" + std::string(name) + "', expected cpu, cuda, cuda:N or auto");
}

}  // namespace walsh
