// Computes on the CPU what lies between the matrices of recurrent layers: the states of sequences,
// short convolutions and the delta rule.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned.h"
#include "base/function_ref.h"
#include "base/memory_visitor.h"
#include "kernels/ops.h"
#include "model/executor.h"
#include "model/model.h"

namespace walsh {

// Rows of a batch lie one after the other, `stride` floats apart.
struct RowsView {
  float* first;
  int64_t stride;

  float* row(int64_t index) const { return first + index * stride; }
};

class CpuDeltaNet {
 public:
  // Holds states in `slots` slots (model/state_snapshots.h), none without recurrent layers. Throws
  // limit with the numbers if they take more than `max_bytes` of memory.
  CpuDeltaNet(const Model& model, int64_t slots, uint64_t max_bytes);

  uint64_t bytes() const { return memory_.size() * sizeof(float); }
  void copy(int32_t from, int32_t to);
  // Visits the states in a slot.
  void visit(int32_t slot, MemoryVisitor visit);
  // Begins a batch: sequences that begin with it have states of zeros.
  void start(std::span<const Run> runs, std::span<const StateMark> marks);

  // Convolves all rows of the batch for a delta net.
  void convolve(const step::Convolve& s, int layer, RowsView channels, RowsView decay,
                RowsView strength);
  // Convolves all rows of the batch between two gates. Row `skip` of the batch is the first one
  // that is written, to row 0 of `to`.
  void convolve_gated(const step::Convolve& s, int layer, RowsView channels, RowsView before,
                      RowsView after, RowsView to, int64_t skip);
  // Applies the delta rule. Row `skip` of the batch is the first one that is written, to row 0 of
  // `mixed`.
  void apply_rule(const step::DeltaRule& s, int layer, RowsView channels, RowsView decay,
                  RowsView strength, RowsView mixed, int64_t skip);

 private:
  // Says where a layer's part of a slot begins, in floats: first come the last `taps - 1` rows that
  // the convolution has read, then the heads.
  struct LayerPlace {
    int64_t rows = 0, heads = 0;
    int64_t channels = 0, taps = 0;
  };
  // A part is the rows of the batch that belong to one run.
  struct Part {
    size_t run;
    int64_t first, rows;
  };

  const DeltaNetDesc& desc_of(int64_t layer) const;
  float* rows_of(int64_t layer, int32_t slot);
  float* head_of(int64_t layer, int32_t slot, int64_t head);
  std::vector<Part> parts() const;
  // Calls see(part, begin, end) for blocks of channels of every run, on all threads.
  void for_blocks(int64_t layer, FunctionRef<void(const Part&, int64_t, int64_t)> see);
  // Convolves the channels [begin, end) of a part. Calls write(row, sums) for its rows from the
  // last one to the first; what is written may replace the channels of the row.
  void convolve_channels(const step::Convolve& s, int layer, const Part& part, RowsView channels,
                         int64_t begin, int64_t end,
                         FunctionRef<void(int64_t row, const float* sums)> write);
  // Copies the last of the first `rows` rows of a part; where these are too few, also of those in
  // the slot before them.
  void keep_rows(int64_t layer, const Part& part, RowsView channels, int64_t rows, int64_t begin,
                 int64_t end, float* out, int64_t stride);
  void finish_additive(const step::Convolve& s, int layer, RowsView decay, RowsView strength,
                       int64_t begin, int64_t end) const;
  void finish_rows(const step::Convolve& s, int layer, RowsView channels, RowsView decay,
                   RowsView strength, int64_t begin, int64_t end) const;
  void run_head(int64_t layer, const Part& part, int64_t head, DeltaRows rows, RowsView mixed,
                int64_t skip, float* scratch);

  const Model& model_;
  const Ops& ops_;
  std::vector<LayerPlace> places_;
  int64_t slot_floats_ = 0;
  AlignedArray<float> memory_;                // [slots][slot_floats_]
  std::vector<AlignedArray<float>> scratch_;  // Each thread has its own.
  std::vector<float> ones_;
  std::span<const Run> runs_;
  std::span<const StateMark> marks_;
};

}  // namespace walsh
