// Reads queries whose heads are not contiguous, such as those with gates between them.
#pragma once

#include "kernels/cuda/rows/rows.h"

namespace walsh::cuda {

// Says where queries are: head h of row t is at q + t * ld + h * head_ld.
struct QuerySource {
  const float* q = nullptr;
  int64_t ld = 0, head_ld = 0;
};

// Does what rope_and_store() does, but reads queries from `queries` and writes them to call.q.
void rope_and_store(const RopeCall& call, const QuerySource& queries, const KvPool& cache,
                    const PageTable& table, const RowPlaces& rows, Stream stream);

}  // namespace walsh::cuda
