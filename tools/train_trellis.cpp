// Trains the tables of the trellis codes of two weights per step and prints the header that holds
// them (formats/trellis.h says how an index becomes a pair):
//
//   cmake --build BUILD --target train_trellis
//   BUILD/tools/train_trellis > src/formats/trellis_codebooks.h
//
// Lloyd's iteration (Lloyd 1982) with the encoder itself as the nearest-neighbour rule: tiles of
// N(0,1) are encoded, then every pair of magnitudes moves to the mean of the weights that chose it,
// mirrored into its quadrant. It starts from cells of equal probability along Hilbert curves, so
// that the evenly spread indices of a Weyl sequence are evenly spread pairs. The result depends on
// the numbers below alone, not on the instruction set.
//
//   train_trellis --search FORMAT COUNT [SEED]
//
// tries COUNT random multipliers for the Weyl sequence, for pairs with a short training each, and
// prints those that come near the best before them: where the multipliers of tc5, tc6 and of the
// codes of pairs come from.
//
//   train_trellis --hash ... | --hash-search ...
//
// measures and searches codes whose weights are the bytes of a product (hash_search.h).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "formats/format.h"
#include "formats/trellis.h"
#include "hash_search.h"
#include "quantize/trellis/trellis_search.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int kCurveSide = 16;    // a Hilbert curve of 256 cells, every second of them a pair
constexpr int kCurvePairs = 128;  // pairs of magnitudes per curve, of which there are two
constexpr int kRounds = 24;
constexpr size_t kTrainingWeights = size_t{1} << 20;

struct Cell {
  int x, y;
};

// Cell number `index` of the Hilbert curve through a square of `side` cells.
Cell hilbert_cell(int side, int index) {
  Cell cell{0, 0};
  for (int size = 1; size < side; size *= 2, index /= 4) {
    const int right = index / 2 & 1, up = (index ^ right) & 1;
    if (up == 0) {
      if (right == 1) cell = {size - 1 - cell.x, size - 1 - cell.y};
      std::swap(cell.x, cell.y);
    }
    cell = {cell.x + size * right, cell.y + size * up};
  }
  return cell;
}

// x with P(|N(0,1)| < x) = share, by bisection.
double half_normal_quantile(double share) {
  double low = 0, high = 8;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erf(middle / std::sqrt(2.0)) < share ? low : high) = middle;
  }
  return low;
}

std::vector<float> normals(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(count);
  for (float& v : x)
    v = static_cast<float>(random.normal());
  return x;
}

class PairTraining {
 public:
  explicit PairTraining(const TrellisCode& code)
      : code_(code), table_(code), magnitudes_(2 * kPairMagnitudes) {
    for (int i = 0; i < kPairMagnitudes; ++i) {
      const Cell cell = hilbert_cell(kCurveSide, 2 * (i % kCurvePairs) + 1);
      const double x = (cell.x + 0.5) / kCurveSide, y = (cell.y + 0.5) / kCurveSide;
      // The two curves share the range of the first weight.
      magnitude(i, 0) = half_normal_quantile((i / kCurvePairs + y) / 2);
      magnitude(i, 1) = half_normal_quantile(x);
    }
    set_levels();
  }

  // Goes on with states of another size.
  void use_state_bits(int bits) {
    code_.state_bits = bits;
    table_ = detail::TrellisTable(code_);
    set_levels();
  }

  // Encodes x, moves the magnitudes to their means, and returns the error before that.
  double round(std::span<const float> x) {
    std::vector<double> sums(magnitudes_.size()), counts(kPairMagnitudes);
    const double error = encode(x, [&](uint32_t index, const float* pair) {
      const uint32_t i = pair_magnitude(index);
      for (int v = 0; v < 2; ++v)
        sums[2 * i + static_cast<uint32_t>(v)] += pair_negative(index, v) ? -pair[v] : pair[v];
      counts[i] += 1;
    });
    for (size_t i = 0; i < magnitudes_.size(); ++i) {
      if (counts[i / 2] > 0) magnitudes_[i] = std::max(0.0, sums[i] / counts[i / 2]);
    }
    set_levels();
    return error;
  }

  double error(std::span<const float> x) {
    return encode(x, [](uint32_t, const float*) {});
  }

  // Rounded to 127 steps of the largest.
  void round_magnitudes() {
    unit_ = *std::max_element(magnitudes_.begin(), magnitudes_.end()) / 127;
    for (double& m : magnitudes_)
      m = std::floor(m / unit_ + 0.5) * unit_;
    set_levels();
  }
  double unit() const { return unit_; }
  std::vector<int> integers() const {
    std::vector<int> values;
    for (double m : magnitudes_)
      values.push_back(static_cast<int>(std::lround(m / unit_)));
    return values;
  }

 private:
  double& magnitude(int i, int value) { return magnitudes_[static_cast<size_t>(2 * i + value)]; }

  uint32_t index_of(uint32_t state) const {
    return (state * code_.multiplier) >> (32 - code_.table_bits);
  }

  void set_levels() {
    const auto states = static_cast<uint32_t>(table_.states());
    for (uint32_t s = 0; s < states; ++s) {
      const uint32_t index = index_of(s);
      for (int v = 0; v < 2; ++v) {
        const double m = magnitude(static_cast<int>(pair_magnitude(index)), v);
        table_.levels.data()[static_cast<uint32_t>(v) * states + s] =
            static_cast<float>(pair_negative(index, v) ? -m : m);
      }
    }
    table_.set_order();
  }

  // NMSE of x; chosen(index, pair) for every step.
  template <typename Chosen>
  double encode(std::span<const float> x, const Chosen& chosen) {
    detail::TileSearch search(table_, detail::seam_weights(Effort::fast));
    const int states = table_.states();
    double error = 0, norm = 0;
    for (size_t begin = 0; begin + kTileWeights <= x.size(); begin += kTileWeights) {
      const float* tile = x.data() + begin;
      uint16_t path[kTileWeights];
      search.encode(tile, path);
      for (int t = 0; t < kTileWeights; ++t) {
        const float level = table_.levels.data()[t % 2 * states + path[t / 2]];
        error += std::pow(static_cast<double>(tile[t]) - static_cast<double>(level), 2);
        norm += std::pow(static_cast<double>(tile[t]), 2);
        if (t % 2 == 0) chosen(index_of(path[t / 2]), tile + t);
      }
    }
    return error / norm;
  }

  TrellisCode code_;
  detail::TrellisTable table_;
  std::vector<double> magnitudes_;  // [kPairMagnitudes][2]
  double unit_ = 0;
};

void print_table(const Format& format) {
  const TrellisCode& code = format.trellis;
  PairTraining training(code);
  const std::vector<float> x = normals(kTrainingWeights, 1);
  for (int i = 0; i < kRounds; ++i) {
    const double error = training.round(x);
    std::fprintf(stderr, "%s round %d: NMSE %.6f\n", std::string(format.name).c_str(), i, error);
  }
  training.round_magnitudes();
  const double error = training.error(normals(kTrainingWeights / 4, 2));
  std::printf("// %s: %d bits per step; NMSE on N(0,1) %.5f.\n", std::string(format.name).c_str(),
              code.step_bits, error);
  std::printf("inline constexpr uint8_t kPairs%dBit[%d] = {", code.step_bits, 2 * kPairMagnitudes);
  const std::vector<int> values = training.integers();
  for (size_t i = 0; i < values.size(); ++i)
    std::printf("%s%3d,", i % 16 == 0 ? "\n    " : i % 2 == 0 ? "  " : " ", values[i]);
  std::printf("\n};\ninline constexpr float kPairs%dBitUnit = %.9ff;\n\n", code.step_bits,
              training.unit());
}

void print_header() {
  std::printf(
      "// Tables of the trellis codes of two weights per step (formats/trellis.h): pairs of\n"
      "// magnitudes. Generated by tools/train_trellis.cpp; do not edit.\n"
      "// clang-format off\n"
      "#pragma once\n\n"
      "#include <cstdint>\n\n"
      "namespace walsh::detail {\n\n");
  for (const Format& format : all_formats()) {
    if (format.kind == CodeKind::trellis && format.trellis.values == 2) print_table(format);
  }
  std::printf("}  // namespace walsh::detail\n");
}

// NMSE of x in a code of one weight per step with other state bits and multiplier.
double level_error(TrellisCode code, int state_bits, uint32_t multiplier,
                   std::span<const float> x) {
  code.state_bits = state_bits;
  code.multiplier = multiplier;
  const detail::TrellisTable table(code);
  detail::TileSearch search(table, detail::seam_weights(Effort::fast));
  double xx = 0, xq = 0, qq = 0;
  for (size_t begin = 0; begin + kTileWeights <= x.size(); begin += kTileWeights) {
    float targets[kTileWeights];
    uint16_t path[kTileWeights];
    for (int t = 0; t < kTileWeights; ++t)
      targets[t] = x[begin + static_cast<size_t>(t)] / code.prescale;
    search.encode(targets, path);
    for (int t = 0; t < kTileWeights; ++t) {
      const auto target = static_cast<double>(targets[t]);
      const auto level = static_cast<double>(table.levels.data()[path[t]]);
      xx += target * target;
      xq += target * level;
      qq += level * level;
    }
  }
  return 1 - xq * xq / (xx * qq);
}

// Random multipliers of a code of one weight per step, those left that are bad on few weights. The
// default state bits count twice, those for compressing while loading once.
void search_level_multiplier(const Format& format, int count, uint64_t seed) {
  constexpr double kNear = 1.012;
  const std::vector<float> few = normals(size_t{1} << 14, 3), more = normals(size_t{1} << 16, 4);
  const TrellisCode& code = format.trellis;
  const int few_bits = fast_trellis_profile(format).trellis.state_bits;
  Random random(seed);
  double best_start = 1, best = 1;
  for (int trial = 0; trial < count; ++trial) {
    const uint32_t multiplier = static_cast<uint32_t>(random.next()) | 1;
    const double start = level_error(code, code.state_bits, multiplier, few);
    if (start > kNear * best_start) continue;
    best_start = std::min(best_start, start);
    const double error = level_error(code, code.state_bits, multiplier, more);
    const double few_error = level_error(code, few_bits, multiplier, more);
    const double all = error * error * few_error;
    if (all > kNear * best) continue;
    best = std::min(best, all);
    std::printf("trial %d: multiplier 0x%08x, NMSE %.6f, with %d state bits %.6f, with %d %.6f\n",
                trial, multiplier, error, few_bits, few_error, code.state_bits + 2,
                level_error(code, code.state_bits + 2, multiplier, more));
    std::fflush(stdout);
  }
}

// Trains shortly with random multipliers, in the profile for compressing while loading first, where
// those that start badly are left. Both that and the default have to be good.
void search_pair_multiplier(const Format& format, int count, uint64_t seed) {
  const std::vector<float> few = normals(size_t{1} << 15, 3), more = normals(size_t{1} << 17, 4);
  const std::vector<float> test = normals(size_t{1} << 17, 5);
  const int few_bits = fast_trellis_profile(format).trellis.state_bits;
  Random random(seed);
  double best_start = 1, best = 1;
  for (int trial = 0; trial < count; ++trial) {
    TrellisCode code = format.trellis;
    code.multiplier = static_cast<uint32_t>(random.next()) | 1;
    PairTraining training(code);
    training.use_state_bits(few_bits);
    double start = 0;
    for (int i = 0; i < 3; ++i)
      start = training.round(few);
    if (start > 1.01 * best_start) continue;
    best_start = std::min(best_start, start);
    training.use_state_bits(format.trellis.state_bits);
    for (int i = 0; i < 6; ++i)
      training.round(more);
    const double error = training.error(test);
    training.use_state_bits(few_bits);
    const double few_error = training.error(test);
    if (error * few_error >= best) continue;
    best = error * few_error;
    std::printf("trial %d: multiplier 0x%08x, NMSE %.5f, with %d state bits %.5f\n", trial,
                code.multiplier, error, few_bits, few_error);
    std::fflush(stdout);
  }
}

int run(std::span<char* const> arguments) {
  if (arguments.empty()) {
    print_header();
    return 0;
  }
  if (std::string_view(arguments[0]).starts_with("--hash")) {
    const int status = run_hash(arguments);
    if (status != 0) std::fprintf(stderr, "usage: see tools/hash_search.h\n");
    return status;
  }
  const bool search = std::string_view(arguments[0]) == "--search" &&
                      (arguments.size() == 3 || arguments.size() == 4);
  if (!search) {
    std::fprintf(stderr, "usage: train_trellis [--search FORMAT COUNT [SEED]]\n");
    return 2;
  }
  const Format& format = get_format(arguments[1]);
  if (format.kind != CodeKind::trellis) {
    throw Error(ErrorCode::usage, std::string(format.name), "is no trellis");
  }
  const int count = std::atoi(arguments[2]);
  const char* text = arguments.size() == 4 ? arguments[3] : "1";
  const uint64_t seed = std::strtoull(text, nullptr, 10);
  if (format.trellis.values == 1) {
    search_level_multiplier(format, count, seed);
  } else {
    search_pair_multiplier(format, count, seed);
  }
  return 0;
}

}  // namespace
}  // namespace walsh

int main(int argc, char** argv) {
  try {
    return walsh::run(std::span(argv + 1, static_cast<size_t>(argc - 1)));
  } catch (const walsh::Error& error) {
    std::fprintf(stderr, "train_trellis: %s\n", error.what());
    return 2;
  }
}
