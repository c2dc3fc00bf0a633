// Checks a walsh file against the checkpoint that it was made from.
#pragma once

#include <string>

#include "arch/plan.h"
#include "base/thread_pool.h"
#include "codec/weight_source.h"
#include "weights/walsh_file.h"

namespace walsh {

// Throws bad_input, naming the file, if it was folded by a version of walsh whose rotations were
// numbered: the rotation of its weights cannot be computed from the file's seed any more.
void check_measurable(const WalshFile& file);

// Returns the NMSE of a stored matrix against the checkpoint's matrix, in the balanced basis. There
// column c of the original is multiplied by s_c = (gain in the checkpoint) / (gain in the file) of
// the norm in front, or, if there is no norm, by the scales that the file states. The matrix of a
// folded model is compared with that of the folded checkpoint; `plan` is the plan of the folded
// one. Throws bad_input if the shapes differ, and whatever check_measurable throws.
double measure_nmse(WalshFile& file, WeightSource& checkpoint, const ModelPlan& plan,
                    const std::string& tensor, ThreadPool& pool);

}  // namespace walsh
