// Computes experts on a GPU: holds their workspaces, and runs their steps over the rows of a batch.
// The host knows neither which experts rows get nor how many rows an expert has.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/rows/prepare.h"
#include "model/cuda/linear.h"

namespace walsh {

class CudaInputMeter;

// Their workspaces have these sizes, the largest of all layers.
struct ExpertShapes {
  int64_t count = 0, chosen = 0, width = 0;   // 0: there are none
  std::vector<BufferShape> inputs, of_down;   // int8 forms of what gate and up read, and down
  int64_t input_floats = 0, down_floats = 0;  // values of rows for plain matrices
};
ExpertShapes expert_shapes(const CudaSizes& sizes);

// Returns how many rows a batch may have so that every slot can be a row of one launch.
int64_t most_expert_rows(const ExpertShapes& shapes);

// Names the experts of a layer of a loaded model.
struct ExpertLayer {
  const Model& model;
  const step::Experts& step;
  int layer = 0;
  // The arrays of neighbouring experts lie this many bytes apart (expert_stride).
  int64_t stride = 0;

  const ExpertsDesc& desc() const { return step.experts; }
  const Linear& matrix(int index) const { return model.matrix(layer, index); }
};
// Returns that distance, which all arrays of the layer share (base/cuda/memory_pool.h). Throws
// internal if they do not.
int64_t expert_stride(const Model& model, int layer, const ExpertsDesc& experts);

class CudaExperts {
 public:
  // Allocates workspaces for batches of up to max_rows rows; none without experts.
  CudaExperts(const ExpertShapes& shapes, int64_t hidden, int64_t max_rows);

  // Returns what a launch in front of the router's other products does for m rows: the choice by
  // logits [m][count], and the inputs of the experts' first products. The result is valid until the
  // next call.
  CudaFront front(const ExpertLayer& layer, const float* logits, const float* bias, int64_t m);
  // Chooses the experts of m rows by their logits [m][count].
  void route(const ExpertLayer& layer, const float* logits, const float* bias, int64_t m,
             cuda::Stream stream);
  // Multiplies the weights of the choices of m rows by factors of their experts.
  void scale_weights(const ExpertsDesc& experts, const float* factors, int64_t m,
                     cuda::Stream stream) const;
  // Computes gate and up of the chosen experts for the rows of the source; `prepared`: a launch in
  // front has made their inputs. A meter (input_meter.h) is told the choices and what experts read.
  void begin(const ExpertLayer& layer, const cuda::InputSource& source, bool prepared, int64_t m,
             cuda::Stream stream, CudaInputMeter* meter = nullptr);
  // Computes down of these experts, and the sum of the results where the call says; adds results,
  // slots, weights and width to the call.
  void finish(const ExpertLayer& layer, cuda::ExpertSum call, cuda::Stream stream,
              CudaInputMeter* meter = nullptr);

 private:
  // This is one product for every slot; it names the matrix of the first expert.
  struct Product {
    int matrix;
    float* y;
    int64_t ldy;
  };
  // Holds the workspaces of one input.
  struct Inputs {
    std::vector<cuda::Activations> quantized;
    cuda::Buffer floats;
    int64_t stride = 0;  // of floats
  };
  // Holds the products of one input, and the forms that they read.
  struct Described {
    std::vector<cuda::InputForm> forms;
    std::vector<cuda::Matmul> coded;
    std::vector<cuda::DenseMatmul> plain;
  };

  static Inputs make_inputs(const std::vector<BufferShape>& shapes, int64_t floats, int64_t rows);
  std::array<Product, 2> first_products(const ExpertsDesc& experts) const;
  static Described describe(const ExpertLayer& layer, const Input& input, Inputs& inputs,
                            std::span<const Product> products);
  static void describe_coded(const ExpertLayer& layer, const Input& input, Inputs& inputs,
                             std::span<const Product> products, Described& all);
  static void multiply(const Described& products, int64_t stride, const cuda::ExpertBatch& batch,
                       const cuda::ExpertTail* tail, cuda::Stream stream);
  void plan(const ExpertLayer& layer, int64_t m);
  cuda::RouteCall route_call(const ExpertsDesc& experts, const float* logits, const float* bias,
                             int64_t m) const;
  cuda::SlotArrays slots() const;
  cuda::ExpertBatch batch(const ExpertsDesc& experts, int64_t m) const;

  int64_t hidden_ = 0;
  cuda::ExpertPlan plan_;                     // of the rows that were routed last
  std::vector<cuda::InputForm> front_forms_;  // what front() has named
  cuda::FrontRoute front_route_;
  cuda::Buffer choices_, slot_, row_;  // int32 [slots]
  cuda::Buffer weights_;               // float [slots]
  cuda::Buffer items_;                 // ExpertItem
  cuda::Buffer gate_, up_, results_;   // float [slots][width], [slots][hidden]
  cuda::Buffer arrived_;               // int32: of the choice, then of sums
  Inputs inputs_, of_down_;
};

}  // namespace walsh
