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
  // The most runs of several rows that a batch may have.
  static int64_t max_prompts(const KvShape& shape);

  // Begins the layers of a batch with these groups of rows, which have to live until its end. A
  // sequence whose run does not begin at its end is taken back.
  void start(std::span<const Run> runs, std::span<const RowGroup> groups, cuda::Stream stream);
  // Stores the bundles that leave the window in a batch of single rows, for all layers. It comes in
  // front of a step that does not store them itself, as keep() does.
  void store_ahead(cuda::Stream stream) const;
  // Returns what a program reads (cuda::PersistentProgram::attend_coded).
  cuda::CodedView view(int64_t layer) const;
  // Writes the keys and values of the batch to the caches. `rope` and `rows` describe all of its
  // rows.
  void keep(int64_t layer, const cuda::RopeCall& rope, const cuda::RowPlaces& rows,
            cuda::Stream stream) const;
  // Computes attention of the batch's rows from `skip` on; `attention` describes all rows.
  void attend(int64_t layer, const cuda::AttentionRows& attention, int64_t skip,
              const cuda::AttentionScratch& scratch, cuda::Stream stream) const;
  // One of these ends the batch; abandon() does if it has failed, and its sequences have to be
  // reset.
  void finish();
  void abandon();
  // These do what Executor's do.
  void copy_page(const PageCopy& copy, cuda::Stream stream) const;
  void fork(int64_t from, int64_t to, cuda::Stream stream);

 private:
  struct Sequence {
    int64_t stored = 0, length = 0;
    bool known = true;  // whether kept_ is up to date
  };

  // Says what a run changes in its sequence. It is the same in all layers.
  struct RunPlan {
    Run run;
    int64_t row;     // of its first token in the batch
    int64_t before;  // positions that are stored before the run,
    int64_t stored;  // and after it
    int64_t fresh;   // first of its rows that are not stored yet, if the run has several rows
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
  cuda::Buffer kept_;   // int32 [sequences]: Sequence::stored, on the device
  cuda::Buffer fresh_;  // keys, then values of one layer: rows of a run that are not stored yet
  cuda::Buffer old_;    // the same for stored rows, decoded
  std::vector<cuda::Buffer> kept_fresh_;     // of layers whose rows others read, or empty
  std::vector<cuda::FreshRows> fresh_rows_;  // by layer
  cuda::FreshRows old_rows_;
};

}  // namespace walsh
