// Checking a walsh file against the checkpoint that it was made from.
#pragma once

#include <string>

#include "arch/plan.h"
#include "base/thread_pool.h"
#include "formats/weight_source.h"
#include "quantize/file/walsh_file.h"

namespace walsh {

// Throws bad_input, naming the file, if it was folded by a walsh whose rotations were numbered: the
// rotation that its weights stand in cannot be made again from the file's seed.
void check_measurable(const WalshFile& file);

// NMSE of a stored matrix against the checkpoint's, in the balanced basis: column c of the original
// is multiplied by s_c = (gain in the checkpoint) / (gain in the file) of the norm that feeds it,
// or by the scales that the file has where there is none. A folded model's matrix is compared with
// the folded one of the checkpoint, whose plan this is. Throws bad_input if the shapes differ, and
// as check_measurable.
double measure_nmse(WalshFile& file, WeightSource& checkpoint, const ModelPlan& plan,
                    const std::string& tensor, ThreadPool& pool);

}  // namespace walsh
