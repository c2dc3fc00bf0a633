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
  // `shape` is that of the device's pages, of which one of `pages` may be several. All outlive it.
  CudaBatch(const KvPages& pages, const KvShape& shape, const CudaMemory& memory);

  // Takes another batch, whose spans live until the next one.
  void describe(const Batch& batch);
  // Sends the pages of its sequences that the device does not know yet.
  void send_pages(cuda::Stream stream);
  // Sends its tokens, positions and sequences to where recorded steps read them, if they are not
  // there.
  void send_rows(cuda::Stream stream);
  // Notes that the tokens chosen behind this batch stand there already as the next one, if
  // places_next().
  void follow();

  int64_t rows() const { return m_; }
  std::span<const Run> runs() const { return batch_.runs; }
  std::span<const StateMark> marks() const { return batch_.marks; }
  bool samples() const { return batch_.samples; }
  const std::vector<RowGroup>& groups() const { return groups_; }
  // Returns the rows whose logits are wanted, and the first one that is needed behind the layers,
  // or the number of all rows.
  std::span<const int32_t> wanted() const { return wanted_; }
  int64_t first_wanted() const {
    return std::min<int64_t>(wanted_.empty() ? m_ : wanted_.front(), batch_.first_read);
  }
  // Returns whether it is single tokens whose logits are wanted all.
  bool decoding() const { return decoding_; }
  // Returns whether the chosen tokens can become the next batch where this one is described.
  bool places_next() const { return decoding_ || wanted_.size() == 1; }
  // Returns how many pages of the pools a page of the session is.
  int64_t pool_pages_each() const;

 private:
  // What goes to the device waits here; there is one for each batch that may be open.
  struct Staging {
    cuda::PinnedBuffer rows;
    cuda::StreamEvent sent;
  };

  bool is_placed() const;
  std::vector<int32_t> pool_pages(int64_t sequence) const;

  const KvPages& pages_;
  const KvShape shape_;
  const CudaMemory& memory_;
  std::vector<int32_t> uploaded_table_;  // what the page table on the device holds
  Staging staging_[2];
  size_t next_staging_ = 0;
  std::vector<Run> placed_;  // runs that the device has already, behind what was chosen last
  bool sent_ = false;        // the device has the rows of this batch

  Batch batch_;
  int64_t m_ = 0;
  std::vector<RowGroup> groups_;  // of its attention
  std::vector<int32_t> wanted_;
  bool decoding_ = false;
};

}  // namespace walsh
