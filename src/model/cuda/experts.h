// Experts on a GPU: their workspaces, and the operations of forward.h over the rows of a batch. The
// host knows neither which experts rows get nor how many rows an expert has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/rows/prepare.h"
#include "model/cuda/linear.h"

namespace walsh {

// Rows of a batch so that every slot can be a row of one launch.
int64_t most_expert_rows(const CudaShapes::Experts& experts);

// Distance in bytes of the arrays of neighbouring experts, which is that of all arrays of the layer
// (base/cuda/memory_pool.h). Throws internal if it is not.
int64_t expert_stride(const LayerDesc& desc, const Layer& layer);

class CudaExperts {
 public:
  // Takes workspaces for batches of up to max_rows rows; none without experts.
  CudaExperts(const CudaShapes::Experts& shapes, int64_t hidden, int64_t max_rows);

  // Chooses the experts of m rows by their logits [m][count].
  void route(const LayerDesc& desc, const Layer& layer, const float* logits, const float* bias,
             int64_t m, cuda::Stream stream);
  // What the chosen ones make of the rows of the source.
  void run(const LayerDesc& desc, const Layer& layer, int64_t stride,
           const cuda::InputSource& source, int64_t m, cuda::Stream stream);
  // The sum of it, where the call says; results, slots, weights and width are added to the call.
  void sum(const LayerDesc& desc, cuda::ExpertSum call, cuda::Stream stream) const;

 private:
  // One product for every slot: the matrix of the first expert.
  struct Product {
    int matrix;
    float* y;
    int64_t ldy;
  };
  // Workspaces of one input.
  struct Inputs {
    std::vector<cuda::Activations> quantized;
    cuda::Buffer floats;
    int64_t stride = 0;  // of floats
  };

  static Inputs make_inputs(const std::vector<BufferShape>& shapes, int64_t floats, int64_t rows);
  void multiply(const LayerDesc& desc, const Layer& layer, int64_t stride, Inputs& inputs,
                const cuda::InputSource& source, int64_t m, const cuda::ExpertBatch& batch,
                std::span<const Product> products, cuda::Stream stream);
  void multiply_coded(const LayerDesc& desc, const Layer& layer, int64_t stride, Inputs& inputs,
                      const cuda::InputSource& source, int64_t m, const cuda::ExpertBatch& batch,
                      std::span<const Product> products, cuda::Stream stream);
  void multiply_plain(const Layer& layer, int64_t stride, Inputs& inputs,
                      const cuda::InputSource& source, int64_t m, const cuda::ExpertBatch& batch,
                      std::span<const Product> products, cuda::Stream stream);
  cuda::ExpertBatch batch(const ExpertsDesc& experts, int64_t m) const;

  int64_t hidden_ = 0;
  cuda::ExpertPlan plan_;              // of the rows that were routed last
  cuda::Buffer choices_, slot_, row_;  // int32 [slots]
  cuda::Buffer weights_;               // float [slots]
  cuda::Buffer items_;                 // ExpertItem
  cuda::Buffer gate_, up_, results_;   // float [slots][width], [slots][hidden]
  Inputs inputs_, gated_;
};

}  // namespace walsh
