// Loads tensors into GPU memory one by one. Stored arrays go through pinned buffers to the device
// and are repacked there.
#include <fmt/format.h>

#include <algorithm>

#include "base/cuda/memory_pool.h"
#include "codec/codec.h"
#include "kernels/cuda/weights/matrix.h"
#include "model/cuda/cuda_model.h"
#include "model/cuda/memory_plan.h"
#include "model/cuda/weights.h"

namespace walsh {
namespace {

class CudaPlacement : public Placement {
 public:
  explicit CudaPlacement(const Device& device) : device_(device) {
    cuda::use_device(device.index);
    uploader_ = std::make_unique<cuda::Uploader>();
  }

  uint64_t plan(const WeightSource& source, const ModelConfig& config, const ModelSteps& steps,
                const LoadOptions& options) override {
    const uint64_t free = cuda::use_device(device_.index).free_bytes;
    uint64_t spare = std::min(free, options.device_spare);
    if (options.device_bytes > 0)
      spare = std::max(spare, free - std::min(free, options.device_bytes));
    plan_cuda_memory(source, config, steps, options, free - spare);
    for (const LayerDesc& layer : config.layers)
      if (layer.experts.present()) pool_bytes_.push_back(expert_pool_bytes(source, layer));
    return spare;
  }

  void place(Linear& linear, Tensor stored, const MatrixDesc& matrix) override {
    auto weights = std::make_shared<CudaWeights>();
    weights->padded = padded_cols(*stored.format, stored.cols);
    begin_matrix(matrix);
    if (stored.format->dense) {
      place_dense(*weights, stored, matrix);
      // Matrices that choose experts or compute decays get float32 inputs, whatever the number of
      // rows.
      if (matrix.plain) {
        weights->dense = cuda::widen(weights->dense, uploader_->stream());
        linear.format = &get_format("f32");
      }
    }
    for (int pass = 0; pass < stored.format->passes; ++pass) {
      weights->rotation[pass] = stored.rotation[pass];
      weights->pass.push_back(allocate(stored, pass, matrix));
      cuda::fill_matrix(weights->pass.back(), stored, pass, *uploader_, staging_);
    }
    if (!linear.bias.empty()) {
      weights->bias = allocate(linear.bias.size() * sizeof(float), matrix);
      uploader_->copy(weights->bias.as(), linear.bias.data(), weights->bias.bytes());
    }
    linear.device_weights = std::move(weights);
    if (stored.on_gpu) uploader_->synchronize();  // Nothing may still read its arrays when they go.
  }

  Tensor on_host(Tensor stored) override {
    if (!stored.on_gpu) return stored;
    auto memory = std::make_shared<std::vector<AlignedArray<std::byte>>>();
    const auto bring = [&](std::span<const std::byte>& array) {
      AlignedArray<std::byte>& copy = memory->emplace_back(array.size());
      cuda::copy_to_host(copy.data(), array.data(), array.size(), uploader_->stream());
      array = {copy.data(), copy.size()};
    };
    if (stored.format->dense) bring(stored.data);
    for (int pass = 0; pass < stored.format->passes; ++pass)
      for (const PassField& field : pass_fields(*stored.format, pass, stored.rows, stored.cols))
        bring(stored.pass[pass].*field.array);
    uploader_->synchronize();
    stored.owner = memory;
    stored.on_gpu = false;
    return stored;
  }

  std::shared_ptr<const DeviceWeights> place_table(const Tensor& stored) override {
    auto embedding = std::make_shared<CudaEmbedding>();
    embedding->format = stored.format;
    embedding->rows = stored.rows;
    embedding->cols = stored.cols;
    const auto keep = [&](std::span<const std::byte> array) {
      cuda::Buffer& copy = embedding->arrays.emplace_back(array.size());
      uploader_->copy(copy.as(), array.data(), array.size());
    };
    if (stored.format->dense) keep(stored.data);
    for (int pass = 0; pass < stored.format->passes; ++pass) {
      embedding->rotation[pass] = stored.rotation[pass];
      for (const PassField& field : pass_fields(*stored.format, pass, stored.rows, stored.cols))
        if (field.array != &PassArrays::codebook) keep(stored.pass[pass].*field.array);
      if (const auto codebook = codec_of(*stored.format).codebook) {
        check_arrays(stored);
        keep(codebook(stored));
      }
    }
    if (embedding_ == nullptr) {  // The embedding comes first.
      embedding_data_ = stored.data.data();
      embedding_ = embedding;
    }
    return embedding;
  }

  void overwrite(const DeviceWeights& weights, const Tensor& values) override {
    const auto* const table = dynamic_cast<const CudaEmbedding*>(&weights);
    const cuda::Buffer& place = table != nullptr
                                    ? table->arrays.front()
                                    : static_cast<const CudaWeights&>(weights).dense.data;
    if (place.bytes() != values.data.size())
      throw Error(ErrorCode::internal, "GPU weights", "a plain matrix gets values of another size");
    uploader_->copy(place.as(), values.data.data(), values.data.size());
  }

  void finish() override { uploader_->synchronize(); }

 private:
  // The experts of a layer share one allocation, so that the arrays of neighbouring experts lie at
  // one distance.
  void begin_matrix(const MatrixDesc& matrix) {
    if (matrix.expert == 0 && last_expert_ != 0) {
      if (next_pool_ == pool_bytes_.size())
        throw Error(ErrorCode::internal, "GPU experts", "more layers of them than were planned");
      pool_ = cuda::MemoryPool(pool_bytes_[next_pool_++]);
    }
    last_expert_ = matrix.expert;
  }

  template <typename Make>
  auto in_pool(const MatrixDesc& matrix, const Make& make) {
    if (matrix.expert < 0) return make();
    const cuda::MemoryPool::Scope scope(pool_);
    return make();
  }

  cuda::Buffer allocate(uint64_t bytes, const MatrixDesc& matrix) {
    return in_pool(matrix, [&] { return cuda::Buffer(bytes); });
  }

  cuda::Matrix allocate(const Tensor& stored, int pass, const MatrixDesc& matrix) {
    return in_pool(matrix, [&] {
      return cuda::allocate_matrix(*stored.format, pass, stored.rows, stored.cols);
    });
  }

  void place_dense(CudaWeights& weights, const Tensor& stored, const MatrixDesc& matrix) {
    const bool tied = embedding_ && stored.data.data() == embedding_data_;
    if (tied) {
      weights.dense = {stored.format->dtype, stored.rows, stored.cols, embedding_->arrays[0]};
    } else {
      weights.dense = in_pool(matrix, [&] { return cuda::upload_dense(stored, *uploader_); });
    }
  }

  Device device_;
  std::vector<uint64_t> pool_bytes_;  // The experts of a layer take this many bytes.
  size_t next_pool_ = 0;
  cuda::MemoryPool pool_;  // It belongs to the layer that is being placed.
  int last_expert_ = -1;   // It is the expert of the last matrix.
  std::unique_ptr<cuda::Uploader> uploader_;
  cuda::Buffer staging_;
  std::shared_ptr<CudaEmbedding> embedding_;
  const std::byte* embedding_data_ = nullptr;
};

}  // namespace

uint64_t CudaWeights::bytes() const {
  uint64_t sum = dense.data.bytes();
  for (const cuda::Matrix& matrix : pass)
    sum += matrix.bytes();
  return sum;
}

uint64_t CudaEmbedding::bytes() const {
  uint64_t sum = 0;
  for (const cuda::Buffer& array : arrays)
    sum += array.bytes();
  return sum;
}

std::unique_ptr<Placement> make_cuda_placement(const Device& device) {
  return std::make_unique<CudaPlacement>(device);
}

}  // namespace walsh
