// Computes experts on a GPU. It holds their workspaces and runs their steps over the rows of a
// batch. The host knows neither which experts rows get nor how many rows an expert has.
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

// Holds the sizes of the experts' workspaces, the largest over all layers.
struct ExpertShapes {
  int64_t count = 0, chosen = 0, width = 0;  // A count of 0 means that no layer has experts.
  // These hold int8 forms of what gate and up read, and of what down reads.
  std::vector<BufferShape> inputs, of_down;
  int64_t input_floats = 0, down_floats = 0;  // A row for plain matrices has this many values.
};
ExpertShapes expert_shapes(const CudaSizes& sizes);

// Returns how many rows a batch may have so that every slot can be a row of one launch.
int64_t most_expert_rows(const ExpertShapes& shapes);

// Names the experts of a layer of a loaded model, for the functions below.
struct ExpertLayer {
  const Model& model;
  const step::Experts& step;
  int layer = 0;
  // The arrays of neighbouring experts lie this many bytes apart (expert_stride).
  int64_t stride = 0;

  const ExpertsDesc& desc() const { return step.experts; }
  const Linear& matrix(int index) const { return model.matrix(layer, index); }
};
// Returns the bytes from an expert's arrays to those of the next one, the same for all arrays of
// the layer (base/cuda/memory_pool.h). Throws internal if they differ.
int64_t expert_stride(const Model& model, int layer, const ExpertsDesc& experts);

class CudaExperts {
 public:
  // Allocates workspaces for batches of up to max_rows rows; none without experts.
  CudaExperts(const ExpertShapes& shapes, int64_t hidden, int64_t max_rows);

  // Returns what the launch of the router's product can also do for m rows: it chooses experts by
  // the logits [m][count] and prepares the inputs of the experts' first products. The result is
  // valid until the next call.
  CudaFront front(const ExpertLayer& layer, const float* logits, const float* bias, int64_t m);
  // Chooses the experts of m rows by their logits [m][count].
  void route(const ExpertLayer& layer, const float* logits, const float* bias, int64_t m,
             cuda::Stream stream);
  // Multiplies the weight of every choice of m rows by the factor of its expert.
  void scale_weights(const ExpertsDesc& experts, const float* factors, int64_t m,
                     cuda::Stream stream) const;
  // Computes gate and up of the chosen experts for the rows of the source; `prepared` says that a
  // launch in front has made their inputs. A meter (input_meter.h) is told the choices and what
  // experts read.
  void begin(const ExpertLayer& layer, const cuda::InputSource& source, bool prepared, int64_t m,
             cuda::Stream stream, CudaInputMeter* meter = nullptr);
  // Computes down of these experts, and the sum of the results as the call says. Fills in results,
  // slots, weights and width of the call.
  void finish(const ExpertLayer& layer, cuda::ExpertSum call, cuda::Stream stream,
              CudaInputMeter* meter = nullptr);

 private:
  // Describes one product that every slot computes with its own expert's matrix; it names that of
  // the first expert.
  struct Product {
    int matrix;
    float* y;
    int64_t ldy;
  };
  // Holds the workspaces of one input of experts.
  struct Inputs {
    std::vector<cuda::Activations> quantized;
    cuda::Buffer floats;
    int64_t stride = 0;  // Float rows are this many values apart.
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
  cuda::ExpertPlan plan_;                     // The rows that were routed last have this plan.
  std::vector<cuda::InputForm> front_forms_;  // They are the forms that front() has named.
  cuda::FrontRoute front_route_;
  cuda::Buffer choices_, slot_, row_;  // The shape of each is [slots], int32.
  cuda::Buffer weights_;               // The shape is [slots], float.
  cuda::Buffer items_;                 // Its elements have the type ExpertItem.
  // The shapes are [slots][width] and, for results, [slots][hidden], float.
  cuda::Buffer gate_, up_, results_;
  // Counts, as int32, the blocks of the choice, then of sums, that have ended.
  cuda::Buffer arrived_;
  Inputs inputs_, of_down_;
};

}  // namespace walsh
