// Queries that do not lie head beside head, as those that have gates between them.
#pragma once

#include "kernels/cuda/rows/rows.h"

namespace walsh::cuda {

// Head h of row t stands at q + t * ld + h * head_ld.
struct QuerySource {
  const float* q = nullptr;
  int64_t ld = 0, head_ld = 0;
};

// rope_and_store() of queries that are read there and written to call.q.
void rope_and_store(const RopeCall& call, const QuerySource& queries, const KvPool& cache,
                    const PageTable& table, const RowPlaces& rows, Stream stream);

}  // namespace walsh::cuda
