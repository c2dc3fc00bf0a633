#include "formats/golden.h"

#include <gtest/gtest.h>

#include "base/cpu.h"

namespace walsh {
namespace {

using testing_support::from_hex;

TEST(GoldenFormats, storedArraysDecodeToTheStoredValues) {
  const nlohmann::json golden = testing_support::read_golden();
  EXPECT_EQ(golden.size(), testing_support::golden_formats().size());
  for (const Format* known : testing_support::golden_formats()) {
    const Format& format = *known;
    const nlohmann::json& g = golden.at(std::string(format.name));
    Tensor tensor;
    tensor.format = &format;
    tensor.rows = testing_support::kGoldenRows;
    tensor.cols = testing_support::kGoldenCols;
    std::vector<std::vector<std::byte>> arrays;
    for (const ArraySpec& spec : array_specs(format, tensor.rows, tensor.cols)) {
      const std::string name = spec.suffix.empty() ? "data" : spec.suffix;
      arrays.push_back(from_hex(g.at("arrays").at(name)));
    }
    EXPECT_EQ(g.at("arrays").size(), arrays.size()) << format.name;
    const std::vector<std::span<const std::byte>> spans(arrays.begin(), arrays.end());
    bind_arrays(tensor, spans);
    for (int pass = 0; pass < format.passes; ++pass)
      tensor.rotation[pass] = testing_support::golden_rotation(format, pass);
    for (Isa isa : supported_isas()) {
      force_isa(isa_name(isa));
      EXPECT_EQ(testing_support::decoded_as_hex(tensor), g.at("decoded").get<std::string>())
          << format.name << ' ' << isa_name(isa);
    }
    force_isa("");
  }
}

}  // namespace
}  // namespace walsh
