// Speed of the candidates of hash_code.h on one core, weights in the second-level cache: decoding
// and the int8 products of one vector. Every sum is compared with the scalar definition first.
//
//   bench_hash [RULE | STEP_BITS]...     without arguments all
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/random.h"
#include "formats/trellis.h"
#include "hash_kernels.h"

namespace walsh {
namespace {

constexpr int64_t kTiles = 128;             // columns: 2,048
constexpr int64_t kCodeBytes = 384 * 1024;  // fits the 1 MiB that a core's cache often has
constexpr int kRounds = 40;

struct Sample {
  HashMatrix w;
  std::vector<std::byte> codes;
  std::vector<int8_t> x;

  explicit Sample(const HashCode& code) {
    w.code = code;
    w.tiles = kTiles;
    w.tile_rows = kCodeBytes / (kTiles * w.tile_bytes());
    codes.resize(static_cast<size_t>(w.tile_rows * kTiles * w.tile_bytes() + 64));
    x.resize(static_cast<size_t>(16 * kTiles));
    Random random(1);
    for (std::byte& b : codes)
      b = static_cast<std::byte>(random.next());
    for (int8_t& v : x)
      v = static_cast<int8_t>(static_cast<int>(random.below(255)) - 127);
    w.codes = codes.data();
  }
};

// The sum of row `row` times x by the definition.
int64_t exact_sum(const Sample& sample, int64_t row) {
  const HashMatrix& w = sample.w;
  const TrellisCode layout = w.code.layout();
  int64_t sum = 0;
  for (int64_t col = 0; col < 16 * w.tiles; ++col) {
    const std::byte* tile = w.codes + (row / 16 * w.tiles + col / 16) * w.tile_bytes();
    const int position = tile_position(static_cast<int>(row % 16), static_cast<int>(col % 16));
    const uint32_t state = trellis_state(layout, tile, position / 2);
    sum += int64_t{hash_level(w.code, state, position % 2)} * sample.x[static_cast<size_t>(col)];
  }
  return sum;
}

// Billions of weights per second, the best of several rounds. Exits if a sum is wrong.
double speed(HashProduct product, const Sample& sample) {
  const HashMatrix& w = sample.w;
  std::vector<int32_t> y(static_cast<size_t>(16 * w.tile_rows));
  product(w, sample.x.data(), y.data());
  for (int64_t row = 0; row < std::min<int64_t>(32, 16 * w.tile_rows); ++row) {
    if (exact_sum(sample, row) != y[static_cast<size_t>(row)]) {
      std::fprintf(stderr, "bench_hash: wrong sum in row %d\n", static_cast<int>(row));
      std::exit(1);
    }
  }
  double best = 1e9;
  for (int i = 0; i < kRounds; ++i) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    for (int j = 0; j < 20; ++j)
      product(w, sample.x.data(), y.data());
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count() / 20);
  }
  return static_cast<double>(256 * w.tile_rows * w.tiles) / best * 1e-9;
}

bool chosen(std::span<char* const> arguments, std::string_view name) {
  return arguments.empty() ||
         std::any_of(arguments.begin(), arguments.end(), [&](const char* a) { return name == a; });
}

int run(std::span<char* const> arguments) {
  std::vector<char*> rules, bits;
  for (char* a : arguments)
    (std::isdigit(static_cast<unsigned char>(*a)) != 0 ? bits : rules).push_back(a);
  const auto isas = supported_isas();
  const auto can = [&](Isa isa) { return std::find(isas.begin(), isas.end(), isa) != isas.end(); };
  std::printf("| rule | multiplier | bits per weight | VBMI, G weights/s | AVX2 |\n");
  for (const HashRuleName& named : kHashRules) {
    for (int k = 4; k <= 8; ++k) {
      for (const bool folded : {true, false}) {
        if (!chosen(rules, named.name) || !chosen(bits, std::to_string(k))) continue;
        if (folded && is_one_byte(named.rule)) continue;  // the same work
        const uint32_t m = folded ? folded_multiplier(0x57a7) : 0x8abbcd8d;
        const Sample sample({named.rule, k, 16, m, 0x6e92dac9});
        std::printf("| %s | %s | %.1f |", std::string(named.name).c_str(),
                    folded ? "folded" : "any", k / 2.0);
        for (const Isa isa : {Isa::avx512vbmi, Isa::avx2}) {
          if (!can(isa)) {
            std::printf(" - |");
            continue;
          }
          std::printf(" %.1f |", speed(isa == Isa::avx2 ? hash_product_avx2(sample.w)
                                                        : hash_product_avx512vbmi(sample.w),
                                       sample));
          std::fflush(stdout);
        }
        std::printf("\n");
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace walsh

int main(int argc, char** argv) {
  return walsh::run(std::span(argv + 1, static_cast<size_t>(argc - 1)));
}
