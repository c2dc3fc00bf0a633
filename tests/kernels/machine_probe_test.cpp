#include "kernels/machine_probe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/aligned.h"
#include "base/cpu.h"
#include "base/random.h"
#include "kernels/probe_loops.h"

namespace walsh {
namespace {

struct Loops {
  ReadLines* read_lines;
  MultiplyAdd* multiply_add;
};

// avx512vbmi has no loops of its own.
std::map<Isa, Loops> supported_loops() {
  std::map<Isa, Loops> loops = {{Isa::ref, {ref::read_lines, ref::multiply_add}}};
  if (isa_supported(Isa::avx2)) loops[Isa::avx2] = {avx2::read_lines, avx2::multiply_add};
  if (isa_supported(Isa::avx512)) loops[Isa::avx512] = {avx512::read_lines, avx512::multiply_add};
  return loops;
}

TEST(ProbeLoops, EveryWordOfEveryLineIsRead) {
  constexpr int64_t kMost = 67;
  AlignedArray<uint64_t> lines(kMost * 8);
  Random random(1);
  for (uint64_t& word : lines)
    word = random.next();
  for (const auto& [isa, loops] : supported_loops()) {
    for (const int64_t count : {0, 1, 2, 3, 4, 5, 7, 8, 66, 67}) {
      uint64_t expected = 0;
      for (int64_t i = 0; i < count * 8; ++i)
        expected ^= lines[static_cast<size_t>(i)];
      EXPECT_EQ(loops.read_lines(lines.data(), count), expected) << isa_name(isa) << " " << count;
    }
  }
}

TEST(ProbeLoops, MultiplyAddsAreCountedPerRound) {
  for (const auto& [isa, loops] : supported_loops()) {
    int32_t sink = 0;
    const int64_t one = loops.multiply_add(1, &sink);
    EXPECT_GE(one, 8) << isa_name(isa);
    EXPECT_EQ(one % 8, 0) << isa_name(isa);
    EXPECT_EQ(loops.multiply_add(1000, &sink), 1000 * one) << isa_name(isa);
    EXPECT_EQ(loops.multiply_add(0, &sink), 0) << isa_name(isa);
  }
}

// The bounds are orders of magnitude away from any machine: what they catch is a loop that was
// optimized away, a wrong unit or a wrong count.
TEST(MachineProbe, ReadBandwidthOfOneThreadIsPlausible) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "half a gigabyte under the thread sanitizer takes minutes";
#endif
  ThreadPool pool(1);
  const double bytes_per_second = measure_read_bandwidth(pool);
  EXPECT_TRUE(std::isfinite(bytes_per_second));
  EXPECT_GT(bytes_per_second, 1e6);
  EXPECT_LT(bytes_per_second, 1e12);
}

TEST(MachineProbe, Int8PeakOfOneThreadIsPlausible) {
  ThreadPool pool(1);
  const double operations_per_second = measure_int8_peak(pool);
  EXPECT_TRUE(std::isfinite(operations_per_second));
  EXPECT_GT(operations_per_second, 1e6);
  EXPECT_LT(operations_per_second, 1e13);
}

TEST(MachineProbe, Int8PeakIsTheSumOverTheThreads) {
  ThreadPool pool(3);
  const double operations_per_second = measure_int8_peak(pool);
  EXPECT_TRUE(std::isfinite(operations_per_second));
  EXPECT_GT(operations_per_second, 3e6);
  EXPECT_LT(operations_per_second, 3e13);
}

}  // namespace
}  // namespace walsh
