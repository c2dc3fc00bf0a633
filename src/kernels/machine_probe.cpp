#include "kernels/machine_probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

#include "base/aligned.h"
#include "base/cpu.h"
#include "kernels/probe_loops.h"

namespace walsh {

namespace {

constexpr int64_t kLines = (int64_t{544} << 20) / 64;
// This many lines are written between two checks for a stop request.
constexpr int64_t kPiece = (int64_t{4} << 20) / 64;
constexpr int kPasses = 7;
constexpr int64_t kRounds = 20000;  // They take well below a scheduler's time slice.
constexpr int kPeakRepeats = 100;

double seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

ReadLines* best_read_lines() {
  if (isa_supported(Isa::avx512)) return avx512::read_lines;
  return isa_supported(Isa::avx2) ? avx2::read_lines : ref::read_lines;
}

// Returns the loop of the unit with which the kernels in use multiply.
MultiplyAdd* multiply_add_in_use() {
  switch (current_isa()) {
    case Isa::amx:
      return amx::multiply_add;
    case Isa::avx512vbmi:
    case Isa::avx512:
      return avx512::multiply_add;
    case Isa::avx2:
      return avx2::multiply_add;
    case Isa::ref:
      break;
  }
  return ref::multiply_add;
}

// Results are added to this, so that no loop is optimized away.
std::atomic<uint64_t> consumed{0};

}  // namespace

double measure_read_bandwidth(ThreadPool& pool) {
  ReadLines* const read = best_read_lines();
  AlignedArray<uint64_t> buffer(static_cast<size_t>(kLines) * 8);
  // Every page is written, because untouched pages all map to the same zero page.
  pool.for_each(kLines / kPiece, [&](int64_t piece) {
    std::fill_n(buffer.data() + piece * kPiece * 8, kPiece * 8, uint64_t{1});
  });
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double start = seconds();
    pool.for_ranges(kLines, 64, [&](int64_t begin, int64_t end) {
      consumed += read(buffer.data() + begin * 8, end - begin);
    });
    best = std::max(best, static_cast<double>(kLines) * 64 / (seconds() - start));
  }
  return best;
}

double measure_int8_peak(ThreadPool& pool) {
  MultiplyAdd* const loop = multiply_add_in_use();
  std::mutex mutex;
  double total = 0;
  pool.run([&](int, int) {
    double best = 0;
    int32_t sink = 0;
    for (int i = 0; i < kPeakRepeats; ++i) {
      const double start = seconds();
      const int64_t done = loop(kRounds, &sink);
      best = std::max(best, static_cast<double>(done) / (seconds() - start));
    }
    consumed += static_cast<uint64_t>(sink);
    const std::lock_guard<std::mutex> lock(mutex);
    total += best;
  });
  return total;
}

}  // namespace walsh
