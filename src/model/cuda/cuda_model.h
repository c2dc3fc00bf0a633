// Makes the executor and the loader of a model on a GPU. In a build without CUDA the same functions
// exist and throw usage.
#pragma once

#include <memory>
#include <string>

#include "model/metering_executor.h"
#include "model/placement.h"

namespace walsh {

std::unique_ptr<Placement> make_cuda_placement(const Device& device);
std::unique_ptr<MeteringExecutor> make_cuda_executor(const Model& model, const KvPages& pages,
                                                     int64_t snapshots);
// Returns the device memory that a model, all of it on options.device, takes with the sessions of
// options.use, if `available` bytes are free. Throws as Model::load() does before it loads.
uint64_t cuda_model_bytes(const WeightSource& source, const ModelConfig& config,
                          const LoadOptions& options, uint64_t available);
// Returns the device memory for measuring the inputs of a part of a model
// (MeteringExecutor::meter).
uint64_t cuda_meter_bytes(const ModelConfig& config, int64_t max_rows);
// Returns why inputs cannot be measured on any GPU; empty if they can.
std::string why_no_cuda_meter();

}  // namespace walsh
