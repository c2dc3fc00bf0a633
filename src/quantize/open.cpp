#include "quantize/open.h"

#include <cstring>
#include <filesystem>
#include <system_error>

#include "quantize/walsh_file.h"
#include "walsh/error.h"

namespace walsh {
namespace {

bool equal(const Checkpoint& checkpoint, const TensorInfo& a, const TensorInfo& b) {
  if (a.dtype_text != b.dtype_text || a.shape != b.shape) return false;
  const auto x = checkpoint.data(a), y = checkpoint.data(b);
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size()) == 0;
}

}  // namespace

Checkpoint open_checkpoint(const std::string& path, const PlanReader& read_plan) {
  Checkpoint checkpoint = Checkpoint::open(path);
  const std::string where = path + "/config.json";
  const ModelPlan plan = read_plan(checkpoint.config_json(), where);
  const bool tied = plan.head.empty();
  const TensorInfo* head = tied ? checkpoint.find(plan.residual.head) : nullptr;
  const TensorInfo* embedding = checkpoint.find(plan.embedding);
  if (head == nullptr || embedding == nullptr || equal(checkpoint, *head, *embedding)) {
    return checkpoint;
  }
  checkpoint.correct_config(untied_config(checkpoint.config_json(), where),
                            where + ": ties the output head to the embedding, but " + head->name +
                                " differs from " + embedding->name + ": it is used");
  return checkpoint;
}

std::unique_ptr<Compressor> open_compressor(const std::string& path, const Recipe& recipe,
                                            const PlanReader& read_plan, ThreadPool& pool) {
  std::error_code unreadable;  // then opening it says why
  if (std::filesystem::is_regular_file(path, unreadable)) {
    throw Error(ErrorCode::usage, path,
                "a file, expected a Hugging Face checkpoint folder: walsh quantizes from the "
                "original weights only");
  }
  Checkpoint checkpoint = open_checkpoint(path, read_plan);
  ModelPlan plan = read_plan(checkpoint.config_json(), path + "/config.json");
  return std::make_unique<Compressor>(std::move(checkpoint), std::move(plan), recipe, pool);
}

std::unique_ptr<WeightSource> open_source(const std::string& path, const Recipe* recipe,
                                          const PlanReader& read_plan, ThreadPool& pool) {
  if (recipe) {
    auto compressor = open_compressor(path, *recipe, read_plan, pool);
    compressor->settle_formats();
    return compressor;
  }
  std::error_code unreadable;
  if (std::filesystem::is_directory(path, unreadable)) {
    return std::make_unique<CheckpointSource>(open_checkpoint(path, read_plan));
  }
  return WalshFile::open(path);
}

}  // namespace walsh
