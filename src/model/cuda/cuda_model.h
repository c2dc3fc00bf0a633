// Models on a GPU. In a build without CUDA the same functions exist and throw usage.
#pragma once

#include <memory>

#include "model/part_executor.h"
#include "model/placement.h"

namespace walsh {

std::unique_ptr<Placement> make_cuda_placement(const Device& device);
std::unique_ptr<PartExecutor> make_cuda_executor(const Model& model, const KvPages& pages,
                                                 int64_t snapshots);

}  // namespace walsh
