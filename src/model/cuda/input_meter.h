// Sums up second moments of the inputs of products in GPU memory: X^T X of rows in bf16, with sums
// in float32.
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

// Tells which experts the rows of a batch have chosen; the arrays are on the device.
struct MeteredChoices {
  // It has the shape [slots] and holds the expert of every choice of every row.
  const int32_t* choices = nullptr;
  const int32_t* rows = nullptr;  // The shape is [slots] and holds the row of each slot.
  int64_t slots = 0;
  // If true, the slots of an expert are neighbours; if not, slots are the choices in their order.
  bool grouped = false;
};

class CudaInputMeter {
 public:
  // Measures the inputs of these steps. All sums start at zero. Allocates what batches of up to
  // max_rows rows need. Throws io if there is no cuBLASLt, and limit if there is no memory.
  CudaInputMeter(const ModelConfig& config, const ModelSteps& steps, int64_t max_rows,
                 const std::set<const Input*>& without_gain);

  // Prepares the sums. It has to be called before the first add().
  void start(cuda::Stream stream);
  // Adds m rows of an input to its sums. An input that the steps do not name is ignored.
  void add(const Input& input, const CudaSource& source, int64_t m, cuda::Stream stream);
  // Tells which experts the rows of the next add_experts() have chosen. Waits for the choices.
  void choose(const MeteredChoices& choices, cuda::Stream stream);
  // Adds the inputs of chosen experts: m rows or, with `by_slot`, a row for every slot.
  void add_experts(const Input& input, const cuda::InputSource& source, int64_t m, bool by_slot,
                   cuda::Stream stream);
  int64_t experts(const Input& input) const { return sites_.at(&input).experts; }
  // Returns the sums over all rows, or over those of an expert. Waits for them.
  InputMoments read(const Input& input, int expert, cuda::Stream stream) const;

 private:
  struct Site {
    int64_t width = 0, experts = 0;
    bool of_all = true;  // If false, sums exist only for experts.
    bool without_gain = false;
    cuda::Buffer sums;            // The shape is [of_all + experts][width][width], float.
    std::vector<int64_t> tokens;  // It counts the rows of each sum.

    size_t place(int expert) const { return static_cast<size_t>(of_all ? expert + 1 : expert); }
    float* sums_of(size_t place) const {
      return sums.as<float>() + static_cast<int64_t>(place) * width * width;
    }
  };
  // Describes neighbouring slots that belong to one expert.
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
  cuda::Buffer rows_;       // The shape is [max_rows or slots][stride], bf16.
  cuda::Buffer slot_rows_;  // It holds the same for slots, gathered, if there are experts.
  cuda::Buffer ones_;       // The shape is [widest], float, and takes the place of gains.
  MeteredChoices choices_;
  std::vector<int32_t> host_choices_;
  std::vector<Group> groups_;
};

}  // namespace walsh
