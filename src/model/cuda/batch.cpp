#include "model/cuda/batch.h"

#include <algorithm>

namespace walsh {
namespace {

// Up to this many rows are sent in a few small copies, which take less time than one of the whole
// array.
constexpr int64_t kFewRows = 64;

}  // namespace

CudaBatch::CudaBatch(const KvPages& pages, const KvShape& shape, const CudaMemory& memory)
    : pages_(pages),
      shape_(shape),
      memory_(memory),
      uploaded_table_(static_cast<size_t>(shape.sequences * shape.pages_per_sequence())) {
  for (Staging& staging : staging_)
    staging.rows = cuda::PinnedBuffer(memory.staged.bytes());
}

int64_t CudaBatch::pool_pages_each() const {
  return pages_.shape().page_positions / shape_.page_positions;
}

void CudaBatch::describe(const Batch& batch) {
  batch_ = batch;
  m_ = 0;
  groups_ = group_rows(batch.runs);
  wanted_.clear();
  decoding_ = true;
  for (const Run& run : batch.runs) {
    decoding_ = decoding_ && run.rows == 1 && run.logits == 1;
    m_ += run.rows;
    for (int64_t row = m_ - run.logits; row < m_; ++row)
      wanted_.push_back(static_cast<int32_t>(row));
  }
  sent_ = is_placed();
  placed_.clear();
}

// Returns whether sampling has already put this batch's tokens where recorded steps read them
// (SampledRows::places_next).
bool CudaBatch::is_placed() const {
  return std::equal(batch_.runs.begin(), batch_.runs.end(), placed_.begin(), placed_.end()) &&
         std::all_of(batch_.tokens.begin(), batch_.tokens.end(),
                     [](int32_t token) { return token == kChosenToken; });
}

void CudaBatch::follow() {
  if (!places_next()) return;
  for (const Run& run : batch_.runs)
    if (run.logits > 0) placed_.push_back({run.sequence, run.position + run.rows, 1, 1});
}

// Returns the pages of a sequence in the pools; one page of the session may be several of these.
std::vector<int32_t> CudaBatch::pool_pages(int64_t sequence) const {
  const int64_t each = pool_pages_each();
  std::vector<int32_t> all;
  for (const int32_t page : pages_.pages(sequence))
    for (int64_t i = 0; i < each; ++i)
      all.push_back(static_cast<int32_t>(page * each + i));
  const auto most = static_cast<size_t>(memory_.cache.table.per_sequence);
  if (all.size() > most) all.resize(most);
  return all;
}

// The copies are finished with their host memory when they return, so the host may change it.
void CudaBatch::send_pages(cuda::Stream stream) {
  for (const Run& run : batch_.runs) {
    const std::vector<int32_t> pages = pool_pages(run.sequence);
    const int64_t at = run.sequence * memory_.cache.table.per_sequence;
    int32_t* known = uploaded_table_.data() + at;
    const auto [first, differs] = std::mismatch(pages.begin(), pages.end(), known);
    if (first == pages.end()) continue;
    const auto from = first - pages.begin(), count = pages.end() - first;
    cuda::copy_to_device(memory_.cache.page_table.as<int32_t>() + at + from, &*first,
                         static_cast<uint64_t>(count) * sizeof(int32_t), stream);
    std::copy(first, pages.end(), differs);
  }
}

void CudaBatch::send_rows(cuda::Stream stream) {
  if (sent_) return;
  sent_ = true;
  Staging& staging = staging_[next_staging_];
  next_staging_ = 1 - next_staging_;
  staging.sent.wait();
  const int64_t max_rows = memory_.max_rows;
  auto* host = staging.rows.as<int32_t>();
  std::copy(batch_.tokens.begin(), batch_.tokens.end(), host);
  int64_t row = 0;
  for (const Run& run : batch_.runs) {
    for (int64_t i = 0; i < run.rows; ++i, ++row) {
      host[max_rows + row] = static_cast<int32_t>(run.position + i);
      host[2 * max_rows + row] = static_cast<int32_t>(run.sequence);
    }
  }
  std::copy(wanted_.begin(), wanted_.end(), host + 3 * max_rows);
  auto* device = memory_.staged.as<int32_t>();
  if (m_ > kFewRows) {
    cuda::copy_to_device(device, host, staging.rows.bytes(), stream);
  } else {
    for (int64_t array = 0; array < CudaMemory::kStaged; ++array) {
      cuda::copy_to_device(device + array * max_rows, host + array * max_rows,
                           static_cast<uint64_t>(m_) * sizeof(int32_t), stream);
    }
  }
  staging.sent.record(stream);
  if (std::find(batch_.tokens.begin(), batch_.tokens.end(), kChosenToken) != batch_.tokens.end())
    cuda::take_chosen(device, device + 2 * max_rows, memory_.next.as<int32_t>(), m_, stream);
}

}  // namespace walsh
