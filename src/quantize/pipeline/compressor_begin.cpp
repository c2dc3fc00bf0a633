// Encodes tensors of a Compressor on devices, several at the same time.
#include "base/stop.h"
#include "codec/codec.h"
#include "codec/trellis/tile_device.h"
#include "quantize/pipeline/compressor.h"
#include "walsh/error.h"

namespace walsh {

void Compressor::search_on(std::vector<detail::TileDevice*> devices) {
  searchers_.clear();
  for (detail::TileDevice* device : devices)
    searchers_.push_back({device, nullptr});
}

// Returns a searcher that is idle and knows the code, or null if there is none.
Compressor::Searcher* Compressor::free_searcher(const Format& format) {
  if (searchers_.empty() && gpu_) search_on(gpu_->shared_tiles());
  for (Searcher& searcher : searchers_) {
    bool busy = false;
    for (const auto& [name, begun] : begun_)
      busy = busy || begun->searcher == &searcher;
    if (!busy && searcher.device->searches(format)) return &searcher;
  }
  return nullptr;
}

bool Compressor::begin(const std::string& name) {
  const TensorPlan& plan = tensors_[index_.at(name)];
  const Format& format = *plan.format;
  if (alone_ || plan.site < 0 || !codec_of(format).searches_tiles) return false;
  Searcher* searcher = free_searcher(format);
  if (searcher == nullptr) return false;
  if (!searcher->pool) searcher->pool = std::make_unique<ThreadPool>(pool_.size());
  auto begun = std::make_unique<Begun>();
  begun->searcher = searcher;
  begun->source = read(name);
  begun->scales = column_scales(name);
  begun->feedback = feedback(plan);
  Begun& job = *begun;
  begun->work = std::make_unique<Background>([this, &plan, &job] {
    if (gpu_) cuda::select_device(gpu_index_);
    job.encoded = encode_rows(plan, job.source, job.scales, job.feedback, job.searcher->device,
                              *job.searcher->pool);
  });
  begun_[name] = std::move(begun);
  return true;
}

void Compressor::abandon() {
  begun_.clear();
}

// Returns a tensor that was begun. If a device lacks the memory for it beside the others, it is
// encoded alone when those have ended, and so is every tensor after it.
Tensor Compressor::finish(const TensorPlan& plan, std::unique_ptr<Begun> begun) {
  try {
    begun->work->wait();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::limit) throw;
    alone_ = true;
    const Tensor source = begun->source;
    begun.reset();
    for (const auto& [name, other] : begun_)
      other->work->wait_for_end();
    return encode(plan, source);
  }
  nmse_[plan.name] = begun->encoded.nmse;
  return begun->encoded.tensor;
}

}  // namespace walsh
