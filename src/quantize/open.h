// Opens whatever a command was given as a model.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "formats/weight_source.h"
#include "quantize/compressor.h"
#include "quantize/recipe.h"
#include "rotate/plan.h"

namespace walsh {

// Reads config.json's text into the plan of the model; the model layer provides it.
using PlanReader = std::function<ModelPlan(std::string_view config_json, std::string_view where)>;

// A checkpoint folder whose config.json is true to its tensors: where it ties the output head to
// the embedding, but the checkpoint holds both with different values, the head is one of its own,
// as for transformers 5; a note says so. Throws as Checkpoint::open and `read_plan`.
Checkpoint open_checkpoint(const std::string& path, const PlanReader& read_plan);

// A checkpoint folder, prepared for compression. Throws usage if `path` is a walsh file already.
std::unique_ptr<Compressor> open_compressor(const std::string& path, const Recipe& recipe,
                                            const PlanReader& read_plan, ThreadPool& pool);

// A walsh file, or a Hugging Face folder: as it is, or compressed while loading if `recipe` is
// given.
std::unique_ptr<WeightSource> open_source(const std::string& path, const Recipe* recipe,
                                          const PlanReader& read_plan, ThreadPool& pool);

}  // namespace walsh
