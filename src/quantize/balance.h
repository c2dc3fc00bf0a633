// Channel balancing before the rotation (formats.md section 1b): input channel c of every matrix
// that reads one activation is scaled by s_c = sqrt(a_c / ||W_c||), the activation by 1/s_c.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "formats/tensor.h"

namespace walsh {

// Squared norms of the columns of a dense matrix, added to norms[cols]. The order of the additions
// does not depend on the number of threads.
void add_column_norms(const Tensor& matrix, ThreadPool& pool, std::span<double> norms);

// The scales s[c] from the squared column norms and the activation sizes a[c] = |gain|. Their
// geometric mean over the channels that carry something is 1; a channel with a zero norm or gain,
// or one that is not finite, gets 1.
std::vector<float> balance_scales(std::span<const double> squared_norms,
                                  std::span<const float> gain);

}  // namespace walsh
