// Measures the encoding speed of the trellis formats on one core, in weights per second of the
// tail-biting search on normal weights. The arithmetic is 2^L fused multiply-adds per weight and
// pass, or 2^L sums of two squares per two weights.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "codec/trellis/trellis.h"
#include "codec/trellis/trellis_profiles.h"
#include "codec/trellis/trellis_search.h"

namespace walsh {
namespace {

constexpr int kTiles = 16;

void bench_search(benchmark::State& state, const Format* format) {
  const detail::TrellisTable table(format->trellis);
  detail::TileSearch search(table, static_cast<int>(state.range(0)));
  Random random(1);
  std::vector<float> x(static_cast<size_t>(kTiles * kTileWeights));
  for (float& v : x)
    v = static_cast<float>(random.normal()) / format->trellis.prescale;
  std::vector<uint16_t> states(x.size());
  for ([[maybe_unused]] auto _ : state) {
    search.encode(x.data(), kTiles, states.data());
    benchmark::DoNotOptimize(states.data());
  }
  const double weights = static_cast<double>(x.size()) * static_cast<double>(state.iterations());
  state.counters["Mw/s"] = benchmark::Counter(weights * 1e-6, benchmark::Counter::kIsRate);
}

void register_all() {
  for (const char* name : {"tc2:h", "tc3:h", "tc4:h", "tc3:hq"}) {
    for (const int bits : {14, 16}) {
      const Format& format = trellis_profile(get_format(name), bits, false);
      auto* search = benchmark::RegisterBenchmark(("search/" + std::string(format.name)).c_str(),
                                                  bench_search, &format);
      for (const Effort effort : {Effort::full, Effort::fast})
        search->Arg(detail::seam_weights(effort));
    }
  }
}

}  // namespace
}  // namespace walsh

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  walsh::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
