// The coded caches of all layers of an executor, and what a batch does to them
// (cache/cuda/coded_cache.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/cuda/coded_cache.h"
#include "model/executor.h"

namespace walsh {

class CudaCodedCaches {
 public:
  CudaCodedCaches(const Model& model, const cuda::PageTable& table, int64_t positions,
                  int64_t sequences, int64_t max_rows);
  // Of the caches of `sequences`, and of what all layers use in turn.
  static uint64_t bytes(const ModelConfig& config, const CacheTypes& types, int64_t positions,
                        int64_t sequences);
  static uint64_t workspace_bytes(const ModelConfig& config, const CacheTypes& types,
                                  int64_t positions, int64_t max_rows);

  // Before the layers of a batch whose longest sequence has `longest` positions; decoding: every
  // run is one row. A sequence that does not go on where it ended is taken back.
  void start(std::span<const Run> runs, int64_t longest, bool decoding, cuda::Stream stream);
  // Keys and values of the batch to the caches; `rope` and `rows` are those of all its rows.
  void keep(int64_t layer, const cuda::RopeCall& rope, const cuda::RowPlaces& rows,
            cuda::Stream stream) const;
  // Attention of the batch's rows from `skip` on; `attention` is that of all.
  void attend(int64_t layer, const cuda::AttentionRows& attention, int64_t skip,
              const cuda::AttentionScratch& scratch, cuda::Stream stream) const;
  // Behind the batch, or after it has failed: its sequences have to be reset then.
  void finish();
  void abandon();

 private:
  struct Sequence {
    int64_t stored = 0, length = 0;
    bool known = true;  // kept_ has what it should
  };

  // What a run does to its sequence, the same in all layers.
  struct Step {
    Run run;
    int64_t row;     // of its first token in the batch
    int64_t before;  // positions that are stored,
    int64_t stored;  // and afterwards
    int64_t fresh;   // first row of those that are not stored yet
  };

  cuda::CodedView view(int64_t layer) const;
  int64_t stored_end(const Sequence& sequence, int64_t position) const;
  void take_back(int64_t index, int64_t position, cuda::Stream stream);
  void upload_kept(int64_t index, cuda::Stream stream);
  cuda::FreshRows fresh_of(const Step& step) const;
  void keep_prompt(const cuda::CodedView& cache, const Step& step, const cuda::RopeCall& rope,
                   const cuda::RowPlaces& rows, cuda::Stream stream) const;
  void attend_prompt(const cuda::CodedView& cache, const Step& step,
                     const cuda::AttentionRows& attention, cuda::Stream stream) const;

  int64_t window_;
  int64_t longest_ = 0;  // of the batch
  bool decoding_ = false;
  std::vector<Step> steps_;
  std::vector<cuda::CodedCache> layers_;
  cuda::PageTable table_;
  std::vector<Sequence> sequences_;
  cuda::Buffer kept_;         // int32 [sequences]
  cuda::Buffer fresh_, old_;  // keys, then values of one layer
  cuda::FreshRows fresh_rows_, old_rows_;
};

}  // namespace walsh
