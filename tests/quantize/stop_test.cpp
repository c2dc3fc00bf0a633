// Encoding a tensor ends when the caller asks for it (walsh/stop.h), not only between tensors.
#include "walsh/stop.h"

#include <gtest/gtest.h>

#include <atomic>

#include "codec/encode/encode_tensor.h"
#include "walsh/error.h"

namespace walsh {
namespace {

TEST(StopEncoding, EndsInTheMiddleOfOneItemOfWork) {
  for (const char* name : {"tq4", "tq4+4", "itq3_s", "tc3:h", "tc4", "pq3"}) {
    const Format& format = get_format(name);
    Rotation rotation[2];
    for (Rotation& r : rotation) {
      r.kind = RotationKind::hadamard;
      r.block = format.rotation_block;
    }
    std::atomic<bool> flag = false;
    const StopScope scope(flag);
    // The rows of the one item are asked for when it has begun.
    const auto read_rows = [&](int64_t begin, int64_t end, float* out) {
      for (int64_t i = 0; i < (end - begin) * 256; ++i)
        out[i] = static_cast<float>(i % 17) - 8;
      flag = true;
    };
    ThreadPool pool(1);
    try {
      encode_tensor(format, rotation, {}, 16, 256, read_rows, pool, nullptr, nullptr);
      ADD_FAILURE() << name << " was encoded";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::interrupted) << e.what();
    }
  }
}

}  // namespace
}  // namespace walsh
