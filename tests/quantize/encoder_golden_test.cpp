#include <gtest/gtest.h>

#include <cstdlib>

#include "base/cpu.h"
#include "codec/encode/encode_tensor.h"
#include "codec/trellis/trellis.h"
#include "codec/golden.h"

namespace walsh {
namespace {

using namespace testing_support;

Tensor encode_golden(const Format& format) {
  const std::vector<float> x = golden_input();
  const Rotation rotation[2] = {golden_rotation(format, 0), golden_rotation(format, 1)};
  ThreadPool pool(1);
  const auto read_rows = [&](int64_t begin, int64_t end, float* out) {
    std::copy(x.begin() + begin * kGoldenCols, x.begin() + end * kGoldenCols, out);
  };
  return encode_tensor(format, rotation, {}, kGoldenRows, kGoldenCols, read_rows, pool, nullptr,
                       nullptr);
}

TEST(GoldenFormats, encoderReproducesThem) {
  if (std::getenv("WALSH_WRITE_GOLDEN") != nullptr) {
    nlohmann::json golden = read_golden();  // with those of retired formats, which nothing makes
    for (const Format* format : golden_formats()) {
      const Tensor tensor = encode_golden(*format);
      golden[std::string(format->name)] = {{"arrays", arrays_as_hex(tensor)},
                                           {"decoded", decoded_as_hex(tensor)}};
    }
    std::ofstream(kGoldenPath) << golden.dump(1) << '\n';
  }
  const nlohmann::json golden = read_golden();
  for (Isa isa : supported_isas()) {
    force_isa(isa_name(isa));
    for (const Format* format : golden_formats()) {
      // These take a second each; TrellisForward compares the sets with fewer states.
      if (isa == Isa::ref && format->trellis.state_bits == kMostStateBits) continue;
      const auto expected = golden.at(std::string(format->name)).at("arrays");
      EXPECT_EQ(nlohmann::json(arrays_as_hex(encode_golden(*format))), expected)
          << format->name << ' ' << isa_name(isa);
    }
  }
  force_isa("");
}

}  // namespace
}  // namespace walsh
