// Holds the batch that an executor on a GPU evaluates: what the host knows of its rows, and the
// arrays in which the device finds their tokens, positions, sequences and pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "model/cuda/executor_memory.h"
#include "model/executor.h"
#include "model/row_groups.h"

namespace walsh {

class CudaBatch {
 public:
  // `shape` describes the device's pages; a page of `pages` may span several of these.
  // `pages` and `memory` outlive this.
  CudaBatch(const KvPages& pages, const KvShape& shape, const CudaMemory& memory);

  // Makes this the current batch. Its spans live until the next call.
  void describe(const Batch& batch);
  // Sends the pages of the batch's sequences that the device does not know yet.
  void send_pages(cuda::Stream stream);
  // Sends the tokens, positions and sequences of the rows to the arrays that recorded steps read,
  // unless they are there already.
  void send_rows(cuda::Stream stream);
  // Notes that sampling has put the tokens chosen for this batch where the next batch reads them,
  // if places_next().
  void follow();

  int64_t rows() const { return m_; }
  std::span<const Run> runs() const { return batch_.runs; }
  std::span<const StateMark> marks() const { return batch_.marks; }
  bool samples() const { return batch_.samples; }
  const std::vector<RowGroup>& groups() const { return groups_; }
  // wanted() returns the rows whose logits are wanted; first_wanted() returns the first row that is
  // needed after the layers, or the number of all rows if none is.
  std::span<const int32_t> wanted() const { return wanted_; }
  int64_t first_wanted() const {
    return std::min<int64_t>(wanted_.empty() ? m_ : wanted_.front(), batch_.first_read);
  }
  // Returns whether every run is a single token whose logits are wanted.
  bool decoding() const { return decoding_; }
  // Returns whether the device can put the chosen tokens in place as the next batch.
  bool places_next() const { return decoding_ || wanted_.size() == 1; }
  // Returns how many pages of the pools make one page of the session.
  int64_t pool_pages_each() const;

 private:
  // Holds in pinned memory what goes to the device. Each batch that may be open has one.
  struct Staging {
    cuda::PinnedBuffer rows;
    cuda::StreamEvent sent;
  };

  bool is_placed() const;
  std::vector<int32_t> pool_pages(int64_t sequence) const;

  const KvPages& pages_;
  const KvShape shape_;
  const CudaMemory& memory_;
  std::vector<int32_t> uploaded_table_;  // The page table on the device holds these numbers.
  Staging staging_[2];
  size_t next_staging_ = 0;
  // The device has these runs already, after the tokens that were chosen last.
  std::vector<Run> placed_;
  bool sent_ = false;  // It says whether the device has the rows of this batch.

  Batch batch_;
  int64_t m_ = 0;
  std::vector<RowGroup> groups_;  // Attention is called once per group.
  std::vector<int32_t> wanted_;
  bool decoding_ = false;
};

}  // namespace walsh
