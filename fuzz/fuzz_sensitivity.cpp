// Takes arbitrary bytes as measured sensitivities. They must give bad_input, or curves that predict
// a usable damage for every format.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "allocate/sensitivity_file.h"
#include "walsh/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const auto& [tensor, curve] : walsh::parse_curves(text, "fuzz", "text")) {
      if (!(curve.alpha() > 0)) std::abort();
      for (const walsh::Format& format : walsh::all_formats()) {
        if (format.bound <= 0) continue;
        const double damage = curve.at(walsh::declared_nmse(format));
        if (!(damage > 0 && damage <= walsh::kMostDamage)) std::abort();
      }
    }
  } catch (const walsh::Error& e) {
    if (e.code() != walsh::ErrorCode::bad_input) std::abort();
  }
  return 0;
}
