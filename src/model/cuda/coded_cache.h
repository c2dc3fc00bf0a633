// Holds the coded caches of all layers of an executor, and tracks what a batch changes in them
// (cache/cuda/coded_cache.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/cuda/coded_cache.h"
#include "model/executor.h"
#include "model/row_groups.h"

namespace walsh {

class CudaCodedCache {
 public:
  CudaCodedCache(const ModelConfig& config, const CacheTypes& types, const cuda::PageTable& table,
                 const KvShape& shape, int64_t max_rows);
  // Returns the most runs of several rows that a batch may have.
  static int64_t max_prompts(const KvShape& shape);

  // Starts a batch whose layers are about to be computed. The groups live until its end. A sequence
  // whose run does not begin at its end is cut back to the run's beginning.
  void start(std::span<const Run> runs, std::span<const RowGroup> groups, cuda::Stream stream);
  // Stores, for all layers, the bundles that leave the window in a batch of single rows. It
  // precedes a step that does not store them itself as keep() does.
  void store_ahead(cuda::Stream stream) const;
  // Returns the view of a layer that a program reads (cuda::PersistentProgram::attend_coded).
  cuda::CodedView view(int64_t layer) const;
  // Writes the keys and values of the batch to the caches. `rope` and `rows` describe all of its
  // rows.
  void keep(int64_t layer, const cuda::RopeCall& rope, const cuda::RowPlaces& rows,
            cuda::Stream stream) const;
  // Computes attention of the batch's rows from `skip` on; `attention` describes all rows.
  void attend(int64_t layer, const cuda::AttentionRows& attention, int64_t skip,
              const cuda::AttentionScratch& scratch, cuda::Stream stream) const;
  // finish() ends a batch that succeeded, abandon() one that failed; the sequences of a failed one
  // have to be reset.
  void finish();
  void abandon();
  // These do what the functions of Executor with the same names do.
  void copy_page(const PageCopy& copy, cuda::Stream stream) const;
  void fork(int64_t from, int64_t to, cuda::Stream stream);

 private:
  struct Sequence {
    int64_t stored = 0, length = 0;
    bool known = true;  // It says whether kept_ is up to date.
  };

  // Says what a run changes in its sequence. It is the same in all layers.
  struct RunPlan {
    Run run;
    int64_t row;  // The first token of the run is this row of the batch.
    // This many positions are stored before the run (`before`) and after it (`stored`).
    int64_t before;
    int64_t stored;
    int64_t fresh;  // In a run of several rows, this is the first row that is not stored yet.
  };

  int64_t stored_end(const Sequence& sequence, int64_t position) const;
  void take_back(int64_t index, int64_t position, cuda::Stream stream);
  void upload_kept(int64_t index, cuda::Stream stream);
  cuda::FreshRows fresh_of(int64_t layer, const RunPlan& plan) const;
  void keep_prefill(int64_t layer, const RunPlan& plan, const cuda::RopeCall& rope,
                    const cuda::RowPlaces& rows, cuda::Stream stream) const;
  void attend_prefill(int64_t layer, const RunPlan& plan, const cuda::AttentionRows& attention,
                      cuda::Stream stream) const;

  int64_t window_;
  std::vector<RunPlan> plans_;
  std::span<const RowGroup> groups_;
  std::vector<cuda::CodedLayer> layers_;
  std::vector<cuda::CodedLayers> on_device_;
  cuda::PageTable table_;
  std::vector<Sequence> sequences_;
  cuda::Buffer kept_;  // It holds Sequence::stored on the device, int32 [sequences].
  // Holds the rows of a layer's runs that are not stored yet, keys before values.
  cuda::Buffer fresh_;
  cuda::Buffer old_;  // It holds the stored rows of a layer, decoded, in the same order.
  // These layers' fresh rows are kept because others read them; else empty.
  std::vector<cuda::Buffer> kept_fresh_;
  std::vector<cuda::FreshRows> fresh_rows_;  // Each layer has an entry.
  cuda::FreshRows old_rows_;
};

}  // namespace walsh
