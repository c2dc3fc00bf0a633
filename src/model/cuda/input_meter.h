// Sums second moments of the inputs of products in GPU memory: X^T X of bf16 rows, in float32.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "codec/feedback/input_statistics.h"
#include "kernels/cuda/gemm/blas.h"
#include "model/cuda/linear.h"
#include "model/model.h"

namespace walsh {

// Tells, on the device, which experts the rows of a batch have.
struct MeteredChoices {
  const int32_t* choices = nullptr;  // [slots]: the expert of every choice of every row
  const int32_t* rows = nullptr;     // [slots]: the row of a slot
  int64_t slots = 0;
  bool grouped = false;  // slots of an expert are neighbours; otherwise they are the choices
};

class CudaInputMeter {
 public:
  // Measures the inputs of these steps, with sums of zero. Allocates all that batches of up to
  // max_rows rows need. Throws io if there is no cuBLASLt, limit if there is no memory.
  CudaInputMeter(const ModelConfig& config, const ModelSteps& steps, int64_t max_rows,
                 const std::set<const Input*>& without_gain);

  // Has to be called before the first sum.
  void start(cuda::Stream stream);
  // Adds m rows of an input. An input that the steps do not name is ignored.
  void add(const Input& input, const CudaSource& source, int64_t m, cuda::Stream stream);
  // Tells the experts of the rows that come next. Waits for them.
  void choose(const MeteredChoices& choices, cuda::Stream stream);
  // Adds the inputs of chosen experts: m rows, or with `by_slot` the rows of all slots.
  void add_experts(const Input& input, const cuda::InputSource& source, int64_t m, bool by_slot,
                   cuda::Stream stream);
  int64_t experts(const Input& input) const { return sites_.at(&input).experts; }
  // Returns the sums for all rows, or for an expert. Waits for them.
  InputMoments read(const Input& input, int expert, cuda::Stream stream) const;

 private:
  struct Site {
    int64_t width = 0, experts = 0;
    bool of_all = true;  // not only of experts
    bool without_gain = false;
    cuda::Buffer sums;            // float [of_all + experts][width][width]
    std::vector<int64_t> tokens;  // of each

    size_t place(int expert) const { return static_cast<size_t>(of_all ? expert + 1 : expert); }
    float* sums_of(size_t place) const {
      return sums.as<float>() + static_cast<int64_t>(place) * width * width;
    }
  };
  // A group is neighbouring slots of an expert.
  struct Group {
    int expert = 0;
    int64_t first = 0, count = 0;
  };

  Site* site_of(const Input& input);
  cuda::InputForm form(int64_t width, const cuda::Buffer& rows) const;
  cuda::InputSource metered(const Site& site, const cuda::InputSource& source) const;
  void sum(Site& site, size_t place, const void* rows, int64_t m, cuda::Stream stream);

  std::map<const Input*, Site> sites_;
  int64_t widest_ = 0;
  cuda::Blas blas_;
  cuda::Buffer rows_;       // bf16 [max_rows, or of slots][stride]
  cuda::Buffer slot_rows_;  // the same of slots, gathered; where there are experts
  cuda::Buffer ones_;       // float [widest]: in place of gains
  MeteredChoices choices_;
  std::vector<int32_t> host_choices_;
  std::vector<Group> groups_;
};

}  // namespace walsh
