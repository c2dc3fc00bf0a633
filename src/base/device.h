// Names the device on which a model runs.
#pragma once

#include <string>
#include <string_view>

namespace walsh {

struct Device {
  bool cuda = false;
  int index = 0;  // number of the GPU

  bool operator==(const Device&) const = default;
  std::string name() const;  // "cpu", "cuda:0"
};

// Accepts "cpu", "cuda", "cuda:N", and "auto": the first usable GPU, or the CPU without one. Throws
// usage for another name and for a GPU that is not there.
Device parse_device(std::string_view name);

}  // namespace walsh
