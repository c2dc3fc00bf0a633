#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>

#include "arch/rope.h"

namespace walsh {
namespace {

// Scales a frequency as Llama 3.1 does: long wavelengths are divided by `factor`, short ones are
// kept, and those in between are interpolated.
double scale_llama3(const RopeConfig& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = static_cast<double>(rope.original_max_positions);
  const double shortest = original / rope.high_freq_factor,
               longest = original / rope.low_freq_factor;
  // Llama 4 sets both bounds to the same value, so no range lies in between.
  if (wavelength < shortest || (shortest == longest && wavelength == longest)) return frequency;
  if (wavelength > longest) return frequency / rope.factor;
  const double blend = (original / wavelength - rope.low_freq_factor) /
                       (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - blend) * frequency / rope.factor + blend * frequency;
}

// Scales frequencies as YaRN does (Peng et al. 2023). They change gradually from kept to divided
// between two pairs, which are derived from numbers of turns.
class YarnBlend {
 public:
  YarnBlend(const RopeConfig& rope, int64_t rotated) : factor_(rope.factor) {
    const auto pair_of = [&](double turns) {
      const double original = static_cast<double>(rope.original_max_positions);
      return static_cast<double>(rotated) * std::log(original / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(rope.theta));
    };
    low_ = pair_of(rope.beta_fast);
    high_ = pair_of(rope.beta_slow);
    if (rope.truncate) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, static_cast<double>(rotated - 1));
    if (low_ == high_) high_ += 0.001;
  }

  double scale(double frequency, int64_t pair) const {
    const double divided =
        std::clamp((static_cast<double>(pair) - low_) / (high_ - low_), 0.0, 1.0);
    return frequency / factor_ * divided + frequency * (1 - divided);
  }

 private:
  double factor_, low_, high_;
};

// Returns the base of dynamic NTK scaling, which grows with the context.
double dynamic_theta(const RopeConfig& rope, int64_t rotated, int64_t positions) {
  if (positions <= rope.original_max_positions) return rope.theta;
  const double longer =
      static_cast<double>(positions) / static_cast<double>(rope.original_max_positions);
  const double exponent = static_cast<double>(rotated) / static_cast<double>(rotated - 2);
  return rope.theta * std::pow(rope.factor * longer - (rope.factor - 1), exponent);
}

}  // namespace

bool depends_on_context(const RopeConfig& rope) {
  return rope.kind == RopeKind::longrope || rope.kind == RopeKind::dynamic;
}

int64_t rotated_values(const RopeConfig& rope, int64_t head_dim) {
  if (rope.dim != 0) return rope.dim;
  if (rope.kind == RopeKind::proportional) return head_dim;
  // A small amount is added so that a share computed as a quotient does not lose a value to
  // rounding.
  return static_cast<int64_t>(static_cast<double>(head_dim) * rope.share + 1e-9);
}

RopeTable rope_table(const RopeConfig& rope, int64_t head_dim, int64_t positions) {
  RopeTable table;
  const int64_t rotated = rotated_values(rope, head_dim);
  const std::vector<float>& factors =
      positions > rope.original_max_positions ? rope.long_factor : rope.short_factor;
  assert(rope.kind != RopeKind::longrope || static_cast<int64_t>(factors.size()) >= rotated / 2);
  const YarnBlend yarn(rope, rotated);
  const double theta = rope.kind == RopeKind::dynamic && rotated > 2
                           ? dynamic_theta(rope, rotated, positions)
                           : rope.theta;
  const auto turning = static_cast<int64_t>(rope.share * static_cast<double>(head_dim) / 2 + 1e-9);
  for (int64_t i = 0; i < rotated / 2; ++i) {
    if (rope.kind == RopeKind::proportional && i >= turning) {
      table.frequencies.push_back(0);
      continue;
    }
    const double exponent = 2 * static_cast<double>(i) / static_cast<double>(rotated);
    double frequency = std::pow(theta, -exponent);
    if (rope.kind == RopeKind::linear || rope.kind == RopeKind::proportional)
      frequency /= rope.factor;
    if (rope.kind == RopeKind::llama3) frequency = scale_llama3(rope, frequency);
    if (rope.kind == RopeKind::yarn) frequency = yarn.scale(frequency, i);
    if (rope.kind == RopeKind::longrope)
      frequency /= static_cast<double>(factors[static_cast<size_t>(i)]);
    table.frequencies.push_back(static_cast<float>(frequency));
  }
  table.magnitude = static_cast<float>(rope.attention_factor);
  for (int64_t i = 0; i < rotated / 2 && rope.sections != RopeConfig().sections; ++i) {
    const auto axis = static_cast<size_t>(i % 3);
    table.axes.push_back(axis > 0 && i < 3 * rope.sections[axis] ? static_cast<uint8_t>(axis) : 0);
  }
  return table;
}

float query_scale(const RopeConfig& rope, int64_t position) {
  if (rope.query_beta == 0) return 1;
  const int64_t steps = position / rope.original_max_positions;
  return static_cast<float>(1 + rope.query_beta * std::log(1 + static_cast<double>(steps)));
}

}  // namespace walsh
