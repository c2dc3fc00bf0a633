#include "codec/golden.h"

#include <gtest/gtest.h>

#include "base/cpu.h"

namespace walsh {
namespace {

// This holds for formats that are written and for those that are only read.
TEST(GoldenFormats, storedArraysDecodeToTheStoredValues) {
  const nlohmann::json golden = testing_support::read_golden();
  for (const Format* format : testing_support::golden_formats())
    EXPECT_TRUE(golden.contains(std::string(format->name))) << format->name;
  for (const auto& [name, g] : golden.items()) {
    std::vector<std::vector<std::byte>> memory;
    const Format& format = stored_format(name);
    const Tensor tensor = testing_support::golden_tensor(golden, format, memory);
    EXPECT_EQ(g.at("arrays").size(), memory.size()) << name;
    for (Isa isa : supported_isas()) {
      force_isa(isa_name(isa));
      EXPECT_EQ(testing_support::decoded_as_hex(tensor), g.at("decoded").get<std::string>())
          << name << ' ' << isa_name(isa);
    }
    force_isa("");
  }
}

}  // namespace
}  // namespace walsh
