// Names the device on which a model runs.
#pragma once

#include <string>
#include <string_view>

namespace walsh {

struct Device {
  bool cuda = false;
  int index = 0;  // It is the number of the GPU.

  bool operator==(const Device&) const = default;
  std::string name() const;  // It returns "cpu" or "cuda:0", for example.
};

// Returns the device with a name: "cpu", "cuda", "cuda:N", or "auto" for the first usable GPU, or
// the CPU if there is none. Throws usage for another name and for a GPU that is not there.
Device parse_device(std::string_view name);

}  // namespace walsh
