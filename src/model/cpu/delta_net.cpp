#include "model/cpu/delta_net.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "kernels/delta_norm.h"
#include "model/convolved_rows.h"

namespace walsh {
namespace {

constexpr int64_t kChannelBlock = 256;  // A thread convolves this many channels at once.
constexpr int64_t kMaxTaps = 16;
constexpr int64_t kAlignment = 16;  // Arrays begin at multiples of 16 floats.

// Returns how many value heads that read one key head are computed together. An additive mixer may
// have one key head for all, whose value heads are divided among threads; each part then keeps the
// key head's rows by itself.
int64_t values_together(const DeltaNetDesc& d) {
  if (!d.additive) return d.group();
  int64_t values = std::min<int64_t>(d.group(), 8);
  while (d.group() % values != 0)
    --values;
  return values;
}

DeltaShape shape_of(const DeltaNetDesc& d) {
  return {values_together(d), d.key_dim, d.value_dim, d.additive};
}

// Returns how many heads with a state there are, each of which has value heads of one key head.
int64_t state_heads(const DeltaNetDesc& d) {
  return d.value_heads / values_together(d);
}

int64_t head_floats(const DeltaNetDesc& d) {
  return round_up(DeltaState::floats(shape_of(d)), kAlignment);
}

// Returns log(1 + e^x).
float softplus(float x) {
  return x > kSoftplusLinear ? x : std::log1p(std::exp(x));
}

}  // namespace

CpuDeltaNet::CpuDeltaNet(const Model& model, int64_t slots, uint64_t max_bytes)
    : model_(model), ops_(ops()), ones_(kChannelBlock, 1.0f) {
  const char* where = "states of recurrent layers";
  int64_t scratch = 0;
  for (const LayerDesc& layer : model.config.layers) {
    LayerPlace& place = places_.emplace_back();
    if (!layer.has_state()) continue;
    const DeltaNetDesc& d = layer.delta_net;
    const ConvolvedRows convolved = convolved_rows(layer);
    place.channels = convolved.channels;
    place.taps = convolved.taps;
    place.rows = slot_floats_;
    place.heads = place.rows + round_up(convolved.floats(), kAlignment);
    slot_floats_ = place.heads;
    if (!d.present()) continue;
    slot_floats_ += state_heads(d) * head_floats(d);
    scratch = std::max(scratch, delta_rule_scratch(shape_of(d)));
  }
  if (slot_floats_ == 0) return;
  const uint64_t bytes = checked_mul(static_cast<uint64_t>(slot_floats_) * sizeof(float),
                                     static_cast<uint64_t>(slots), where);
  if (bytes > max_bytes) {
    throw Error(ErrorCode::limit, where,
                fmt::format("{} of them need {} MiB, the limit leaves {} MiB", slots, bytes >> 20,
                            max_bytes >> 20));
  }
  memory_ = AlignedArray<float>(static_cast<size_t>(slots * slot_floats_));
  for (int t = 0; t < model.pool().size(); ++t)
    scratch_.emplace_back(static_cast<size_t>(scratch));
}

const DeltaNetDesc& CpuDeltaNet::desc_of(int64_t layer) const {
  return model_.config.layers[static_cast<size_t>(layer)].delta_net;
}

float* CpuDeltaNet::rows_of(int64_t layer, int32_t slot) {
  return memory_.data() + slot * slot_floats_ + places_[static_cast<size_t>(layer)].rows;
}

float* CpuDeltaNet::head_of(int64_t layer, int32_t slot, int64_t head) {
  return memory_.data() + slot * slot_floats_ + places_[static_cast<size_t>(layer)].heads +
         head * head_floats(desc_of(layer));
}

void CpuDeltaNet::copy(int32_t from, int32_t to) {
  std::copy_n(memory_.data() + from * slot_floats_, slot_floats_,
              memory_.data() + to * slot_floats_);
}

void CpuDeltaNet::visit(int32_t slot, MemoryVisitor visit) {
  visit_block(visit, memory_, slot, slot_floats_);
}

void CpuDeltaNet::start(std::span<const Run> runs, std::span<const StateMark> marks) {
  runs_ = runs;
  marks_ = marks;
  if (slot_floats_ == 0) return;
  for (const Run& run : runs) {
    if (run.position == 0)
      std::fill_n(memory_.data() + run.sequence * slot_floats_, slot_floats_, 0.0f);
  }
}

std::vector<CpuDeltaNet::Part> CpuDeltaNet::parts() const {
  std::vector<Part> parts;
  int64_t first = 0;
  for (size_t run = 0; run < runs_.size(); ++run) {
    parts.push_back({run, first, runs_[run].rows});
    first += runs_[run].rows;
  }
  return parts;
}

void CpuDeltaNet::keep_rows(int64_t layer, const Part& part, RowsView channels, int64_t rows,
                            int64_t begin, int64_t end, float* out, int64_t stride) {
  const LayerPlace& place = places_[static_cast<size_t>(layer)];
  const float* before = rows_of(layer, static_cast<int32_t>(runs_[part.run].sequence));
  const int64_t kept = place.taps - 1;
  for (int64_t i = 0; i < kept; ++i) {
    const int64_t row = rows - kept + i;
    const float* from =
        row >= 0 ? channels.row(part.first + row) : before + (row + kept) * place.channels;
    std::copy_n(from + begin, end - begin, out + i * stride);
  }
}

void CpuDeltaNet::for_blocks(int64_t layer, FunctionRef<void(const Part&, int64_t, int64_t)> see) {
  const int64_t channels = places_[static_cast<size_t>(layer)].channels;
  const std::vector<Part> all = parts();
  const int64_t blocks = (channels + kChannelBlock - 1) / kChannelBlock;
  model_.pool().for_each(blocks * static_cast<int64_t>(all.size()), [&](int64_t item) {
    const int64_t begin = item % blocks * kChannelBlock;
    see(all[static_cast<size_t>(item / blocks)], begin, std::min(begin + kChannelBlock, channels));
  });
}

// Goes from the last row to the first, since the convolution still reads the rows in front of each.
void CpuDeltaNet::convolve_channels(const step::Convolve& s, int layer, const Part& part,
                                    RowsView channels, int64_t begin, int64_t end,
                                    FunctionRef<void(int64_t row, const float* sums)> write) {
  const LayerPlace& place = places_[static_cast<size_t>(layer)];
  const int64_t kept = place.taps - 1, n = end - begin, stride = place.channels;
  const float* taps = model_.vector(layer, s.taps).data();
  const float* bias = s.channel_bias >= 0 ? model_.vector(layer, s.channel_bias).data() : nullptr;
  float* before = rows_of(layer, static_cast<int32_t>(runs_[part.run].sequence));
  float last[kMaxTaps * kChannelBlock];
  for (const StateMark& mark : marks_) {
    if (mark.run != part.run) continue;
    keep_rows(layer, part, channels, mark.rows, begin, end, rows_of(layer, mark.slot) + begin,
              stride);
  }
  keep_rows(layer, part, channels, part.rows, begin, end, last, n);
  for (int64_t t = part.rows; t-- > 0;) {
    float sums[kChannelBlock] = {};
    if (bias != nullptr) std::copy_n(bias + begin, n, sums);
    for (int64_t tap = 0; tap < place.taps; ++tap) {
      const int64_t row = t - kept + tap;
      const float* x = row >= 0 ? channels.row(part.first + row) : before + (row + kept) * stride;
      const float* w = taps + tap * stride;
      for (int64_t c = 0; c < n; ++c)
        sums[c] += w[begin + c] * x[begin + c];
    }
    write(part.first + t, sums);
  }
  for (int64_t i = 0; i < kept; ++i)
    std::copy_n(last + i * n, n, before + i * stride + begin);
}

// Computes strengths and logarithms of decays of an additive mixer.
void CpuDeltaNet::finish_additive(const step::Convolve& s, int layer, RowsView decay,
                                  RowsView strength, int64_t begin, int64_t end) const {
  const DeltaNetDesc& d = s.net;
  const std::span<const float> rate = model_.vector(layer, s.rate),
                               bias = model_.vector(layer, s.bias);
  for (int64_t row = begin; row < end; ++row) {
    float *a = decay.row(row), *b = strength.row(row);
    for (int64_t h = 0; h < d.value_heads; ++h) {
      const auto i = static_cast<size_t>(h);
      b[h] = std::clamp(softplus(b[h] + bias[i]), d.least_strength, d.most_strength);
      a[h] = -rate[i] * b[h];
    }
  }
}

// Computes lengths of queries and keys, logarithms of decays, and strengths.
void CpuDeltaNet::finish_rows(const step::Convolve& s, int layer, RowsView channels, RowsView decay,
                              RowsView strength, int64_t begin, int64_t end) const {
  const DeltaNetDesc& d = s.net;
  const float* query_scale = model_.vector(layer, s.query_scale).data();
  const float* key_scale = model_.vector(layer, s.key_scale).data();
  const std::span<const float> rate = model_.vector(layer, s.rate),
                               bias = model_.vector(layer, s.bias);
  const float eps = kLengthEpsilon / static_cast<float>(d.key_dim);
  for (int64_t row = begin; row < end; ++row) {
    float* q = channels.row(row);
    float* k = q + d.key_width();
    for (int64_t h = 0; h < d.key_heads; ++h, q += d.key_dim, k += d.key_dim) {
      ops_.rms_norm(q, query_scale, d.key_dim, eps, q);
      ops_.rms_norm(k, key_scale, d.key_dim, eps, k);
    }
    float *a = decay.row(row), *b = strength.row(row);
    for (int64_t h = 0; h < d.value_heads; ++h) {
      const auto i = static_cast<size_t>(h);
      a[h] = -rate[i] * softplus(a[h] + bias[i]);
      b[h] = 1 / (1 + std::exp(-b[h]));
    }
  }
}

void CpuDeltaNet::convolve(const step::Convolve& s, int layer, RowsView channels, RowsView decay,
                           RowsView strength) {
  for_blocks(layer, [&](const Part& part, int64_t begin, int64_t end) {
    convolve_channels(s, layer, part, channels, begin, end, [&](int64_t row, const float* sums) {
      ops_.silu_mul(sums, ones_.data(), end - begin, channels.row(row) + begin);
    });
  });
  const Part last = parts().back();
  model_.pool().for_ranges(last.first + last.rows, 1, [&](int64_t begin, int64_t end) {
    if (s.net.additive) return finish_additive(s, layer, decay, strength, begin, end);
    finish_rows(s, layer, channels, decay, strength, begin, end);
  });
}

void CpuDeltaNet::convolve_gated(const step::Convolve& s, int layer, RowsView channels,
                                 RowsView before, RowsView after, RowsView to, int64_t skip) {
  for_blocks(layer, [&](const Part& part, int64_t begin, int64_t end) {
    for (int64_t row = part.first; row < part.first + part.rows; ++row)
      for (int64_t c = begin; c < end; ++c)
        channels.row(row)[c] *= before.row(row)[c];
    convolve_channels(s, layer, part, channels, begin, end, [&](int64_t row, const float* sums) {
      if (row < skip) return;
      const float* gate = after.row(row);
      float* out = to.row(row - skip);
      for (int64_t c = begin; c < end; ++c)
        out[c] = gate[c] * sums[c - begin];
    });
  });
}

// `rows` begins with the first row of the part.
void CpuDeltaNet::run_head(int64_t layer, const Part& part, int64_t head, DeltaRows rows,
                           RowsView mixed, int64_t skip, float* scratch) {
  const DeltaNetDesc& d = desc_of(layer);
  const Run& run = runs_[part.run];
  const DeltaShape shape = shape_of(d);
  float* own = head_of(layer, static_cast<int32_t>(run.sequence), head);
  const auto next_mark = [&](int64_t done) {
    const StateMark* next = nullptr;
    for (const StateMark& mark : marks_) {
      if (mark.run == part.run && mark.rows > done && (next == nullptr || mark.rows < next->rows))
        next = &mark;
    }
    return next;
  };
  for (int64_t done = 0; done < part.rows;) {
    const int64_t used = (run.position + done) % kDeltaChunk;
    const StateMark* mark = next_mark(done);
    const int64_t end = mark != nullptr ? mark->rows : part.rows;
    const int64_t m = std::min(kDeltaChunk - used, end - done);
    const int64_t first = part.first + done;  // It is a row of the batch.
    rows.first = std::max<int64_t>(0, skip - first);
    rows.out = mixed.row(std::max<int64_t>(0, first - skip)) + head * shape.values * d.value_dim;
    ops_.delta_rule(shape, {shape, own}, rows, used, m, scratch);
    rows.q += m * rows.ld;
    rows.k += m * rows.ld;
    rows.v += m * rows.ld;
    rows.log_decay += m * rows.ld_decay;
    rows.strength += m * rows.ld_strength;
    done += m;
    if (mark != nullptr && mark->rows == done)
      std::copy_n(own, DeltaState::floats(shape), head_of(layer, mark->slot, head));
  }
}

void CpuDeltaNet::apply_rule(const step::DeltaRule& s, int layer, RowsView channels, RowsView decay,
                             RowsView strength, RowsView mixed, int64_t skip) {
  const DeltaNetDesc& d = s.net;
  const std::vector<Part> all = parts();
  const int64_t heads = state_heads(d);
  model_.pool().for_each(heads * static_cast<int64_t>(all.size()), [&](int64_t item, int thread) {
    const Part& part = all[static_cast<size_t>(item / heads)];
    const int64_t head = item % heads, value = head * values_together(d);
    const float* first = channels.row(part.first);
    DeltaRows rows = {};
    rows.q = first + d.query_of(value);
    rows.k = first + d.key_of(value);
    rows.v = first + d.value_of(value);
    rows.ld = channels.stride;
    rows.log_decay = decay.row(part.first) + value;
    rows.ld_decay = decay.stride;
    rows.strength = strength.row(part.first) + value;
    rows.ld_strength = strength.stride;
    if (s.skip >= 0) rows.skip = model_.vector(layer, s.skip).data() + value;
    rows.ld_out = mixed.stride;
    run_head(layer, part, head, rows, mixed, skip, scratch_[static_cast<size_t>(thread)].data());
  });
}

}  // namespace walsh
