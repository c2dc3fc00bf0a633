#include "hash_search.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "formats/trellis.h"
#include "hash_code.h"
#include "quantize/scalar/encoder.h"
#include "quantize/trellis/trellis_kernels.h"
#include "quantize/trellis/trellis_search.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr float kForbidden = 1e30f;
constexpr int kSteps = kTileWeights / 2;

struct Multipliers {
  uint32_t first = 1, second = 1;
};

struct Found {
  Multipliers multipliers;
  double error = 0;
};

// All levels of a code in the layout of the encoder's forward pass, with the root mean square
// `stretch`.
detail::TrellisTable level_table(const HashCode& code, double stretch) {
  static constexpr int8_t kNone[4] = {};
  TrellisCode layout = code.layout();
  layout.table = kNone;
  layout.table_bits = 1;
  detail::TrellisTable table(layout);
  double square = 0;
  float* out = table.levels.data();
  for (int v = 0; v < 2; ++v) {
    for (int s = 0; s < table.states(); ++s) {
      const int level = hash_level(code, static_cast<uint32_t>(s), v);
      square += level * level;
      *out++ = static_cast<float>(level);
    }
  }
  const double scale = stretch / std::sqrt(square / (2.0 * table.states()));
  for (float& level : table.levels)
    level = static_cast<float>(static_cast<double>(level) * scale);
  table.set_order();
  return table;
}

// The tail-biting search of detail::TileSearch, for steps of up to 8 bits.
class TileCoder {
 public:
  TileCoder(const detail::TrellisTable& table, int seam_weights)
      : table_(table),
        forward_(detail::trellis_forward()),
        seam_weights_(seam_weights),
        best_(static_cast<size_t>(2 * kSteps + 1) * static_cast<size_t>(table.classes())) {}

  // States of the steps of the tile x[kTileWeights].
  void encode(const float* x, uint16_t* states) {
    std::vector<float> window(x + kTileWeights - seam_weights_, x + kTileWeights);
    window.insert(window.end(), x, x + seam_weights_);
    std::fill_n(best_.data(), table_.classes(), 0.0f);
    forward_(table_, window.data(), seam_weights_, best_.data());
    const float* last = best_.data() + int64_t{seam_weights_} * table_.classes();
    const auto end = std::min_element(last, last + table_.classes()) - last;
    uint16_t around[2 * kSteps];
    trace(window.data(), seam_weights_, static_cast<int>(end), around);
    const int seam = around[seam_weights_ / 2 - 1] & (table_.classes() - 1);
    std::fill_n(best_.data(), table_.classes(), kForbidden);
    best_.data()[seam] = 0;
    forward_(table_, x, kSteps, best_.data());
    trace(x, kSteps, seam, states);
  }

 private:
  void trace(const float* x, int steps, int last_class, uint16_t* states) const {
    const int classes = table_.classes(), count = table_.states();
    const float* level = table_.levels.data();
    for (int t = steps - 1, p = last_class; t >= 0; --t) {
      const float* best = best_.data() + int64_t{t} * classes;
      float least = 2 * kForbidden;
      int chosen = p;
      for (int s = p; s < count; s += classes) {
        const float d = x[2 * t] - level[s], e = x[2 * t + 1] - level[count + s];
        const float cost = best[s >> table_.step_bits] + d * d + e * e;
        if (cost < least) least = cost, chosen = s;
      }
      states[t] = static_cast<uint16_t>(chosen);
      p = chosen >> table_.step_bits;
    }
  }

  const detail::TrellisTable& table_;
  detail::TrellisForward forward_;
  int seam_weights_;
  AlignedArray<float> best_;  // [steps + 1][classes]
};

// The sample of N(0,1): `count` tiles from number `first` on of one fixed sequence.
std::vector<float> tiles_of_normals(int first, int count) {
  std::vector<float> x(static_cast<size_t>(count) * kTileWeights);
  for (int i = 0; i < count; ++i) {
    Random random(0x1000u + static_cast<uint64_t>(first + i));
    for (int t = 0; t < kTileWeights; ++t)
      x[static_cast<size_t>(i * kTileWeights + t)] = static_cast<float>(random.normal());
  }
  return x;
}

// Squared error over squared norm after the least-squares scale of the whole sample.
double normalized_error(const HashCode& code, double stretch, std::span<const float> x,
                        Effort effort) {
  const detail::TrellisTable table = level_table(code, stretch);
  TileCoder coder(table, detail::seam_weights(effort));
  double xx = 0, xq = 0, qq = 0;
  for (size_t begin = 0; begin < x.size(); begin += kTileWeights) {
    uint16_t states[kSteps];
    coder.encode(x.data() + begin, states);
    for (size_t t = 0; t < kTileWeights; ++t) {
      const auto target = static_cast<double>(x[begin + t]);
      const auto level = static_cast<double>(
          table.levels.data()[t % 2 * static_cast<size_t>(table.states()) + states[t / 2]]);
      xx += target * target;
      xq += target * level;
      qq += level * level;
    }
  }
  return 1 - xq * xq / (xx * qq);
}

double error_of(HashCode code, const Multipliers& m, double stretch, std::span<const float> x,
                Effort effort) {
  code.multiplier = m.first;
  code.second = m.second;
  return normalized_error(code, stretch, x, effort);
}

// Sorts by the error over other tiles and keeps the `keep` best.
void refine(std::vector<Found>& found, const HashCode& code, double stretch, int first_tile,
            int tiles, size_t keep) {
  const std::vector<float> x = tiles_of_normals(first_tile, tiles);
  for (Found& f : found)
    f.error = error_of(code, f.multipliers, stretch, x, Effort::fast);
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.error < b.error; });
  found.resize(std::min(found.size(), keep));
}

void search(const HashCode& code, double stretch, std::string_view kind, uint32_t count,
            uint64_t seed) {
  constexpr uint32_t kOdd16 = 32768;
  Random random(seed);
  std::vector<Found> found(count);
  for (uint32_t i = 0; i < count; ++i) {
    Multipliers& m = found[i].multipliers;
    m.first = static_cast<uint32_t>(random.next() >> 32) | 1;
    m.second = static_cast<uint32_t>(random.next() >> 32) | 1;
    if (kind == "folded") m.first = folded_multiplier(count == kOdd16 ? 2 * i + 1 : m.first);
    if (kind == "upper") m.first = (m.first | 1u << 10) & ~0x3ffu;
  }
  refine(found, code, stretch, 0, 12, std::max<size_t>(count / 12, 16));
  refine(found, code, stretch, 100, 64, 16);
  refine(found, code, stretch, 200, 400, 4);
  for (const Found& f : found) {
    std::printf("%08x,%08x  NMSE %.6f on 400 tiles, seam of 32\n", f.multipliers.first,
                f.multipliers.second, f.error);
  }
}

void evaluate(const HashCode& code, const std::string& stretches, int tiles,
              std::span<char* const> multipliers) {
  const std::vector<float> x = tiles_of_normals(1000, tiles);
  for (const char* text : multipliers) {
    Multipliers m;
    char* end = nullptr;
    m.first = static_cast<uint32_t>(std::strtoul(text, &end, 16));
    if (*end == ',') m.second = static_cast<uint32_t>(std::strtoul(end + 1, nullptr, 16));
    for (size_t at = 0; at < stretches.size(); at = stretches.find(',', at) + 1) {
      const double stretch = std::atof(stretches.c_str() + at);
      std::printf("%s  stretch %.3f  NMSE %.6f\n", text, stretch,
                  error_of(code, m, stretch, x, Effort::full));
      std::fflush(stdout);
      if (stretches.find(',', at) == std::string::npos) break;
    }
  }
}

HashCode parse_code(std::span<char* const> arguments) {
  HashCode code;
  const auto* named = std::find_if(std::begin(kHashRules), std::end(kHashRules),
                                   [&](const HashRuleName& r) { return r.name == arguments[0]; });
  code.step_bits = std::atoi(arguments[1]);
  code.state_bits = std::atoi(arguments[2]);
  if (named == std::end(kHashRules) || code.step_bits < 4 || code.step_bits > 8 ||
      code.state_bits < code.step_bits + 4 || code.state_bits > kMostStateBits) {
    throw Error(ErrorCode::usage, arguments[0], "no such rule, or bits out of range");
  }
  code.rule = named->rule;
  return code;
}

}  // namespace

int run_hash(std::span<char* const> arguments) {
  const std::string_view command = arguments.empty() ? "" : arguments[0];
  if (command == "--hash" && arguments.size() >= 7) {
    evaluate(parse_code(arguments.subspan(1)), arguments[4], std::atoi(arguments[5]),
             arguments.subspan(6));
    return 0;
  }
  if (command == "--hash-search" && (arguments.size() == 7 || arguments.size() == 8)) {
    const uint64_t seed = arguments.size() == 8 ? std::strtoull(arguments[7], nullptr, 10) : 1;
    search(parse_code(arguments.subspan(1)), std::atof(arguments[4]), arguments[5],
           static_cast<uint32_t>(std::strtoul(arguments[6], nullptr, 10)), seed);
    return 0;
  }
  return 2;
}

}  // namespace walsh
