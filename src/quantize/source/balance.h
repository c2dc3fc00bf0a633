// Balances channels before the rotation (docs/design.md): input channel c of every matrix that
// reads one activation is scaled by s_c = sqrt(a_c / ||W_c||), and the activation by 1/s_c.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arch/plan.h"
#include "base/thread_pool.h"
#include "codec/tensor.h"

namespace walsh {

// Adds the squared norms of the columns of a dense matrix to norms[cols]. The order of the
// additions does not depend on the number of threads.
void add_column_norms(const Tensor& matrix, ThreadPool& pool, std::span<double> norms);

// Returns the scales s[c] from the squared column norms and the activation sizes a[c], which are
// |gain| of the norm in front, or the measured rms. Their geometric mean over the channels that
// carry something is 1; a channel with a zero norm or gain, or one that is not finite, gets 1.
std::vector<float> balance_scales(std::span<const double> squared_norms,
                                  std::span<const float> gain);

// Gives one scale to channels that come from one row of the feeder (query heads that share a KV
// head): all of them get the sum of their squared norms and the root of the sum of their squared
// sizes.
void tie_channels(const Feeder& feeder, std::span<double> squared_norms, std::span<float> sizes);

// Returns the factor of each of the feeder's `rows` rows that undoes scales[channel] of the
// channels that it feeds.
std::vector<float> feeder_factors(const Feeder& feeder, std::span<const float> scales,
                                  int64_t rows);
// Returns the matrix with column c multiplied by scales[c], as f32.
Tensor scale_columns(const Tensor& matrix, std::span<const float> scales);
// Returns the matrix, or a vector as one row, with row (or element) r multiplied by factors[r], as
// f32.
Tensor scale_rows(const Tensor& tensor, std::span<const float> factors, ThreadPool& pool);

}  // namespace walsh
