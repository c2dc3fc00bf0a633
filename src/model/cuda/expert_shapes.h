// The workspaces that experts need, from what is known of their matrices before and after loading.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "arch/layer.h"
#include "model/cuda/linear.h"

namespace walsh {

class ExpertShapes {
 public:
  // Distinct int8 forms of one input, named by numbers, and the width of plain rows.
  class Forms {
   public:
    void add(int name, const BufferShape& shape) {
      if (shape.planes > 0 && seen_.insert(name).second)
        ++here_[{shape.cols, shape.planes, shape.group}];
    }
    void add_floats(int64_t cols) { floats_ = std::max(floats_, cols); }

   private:
    friend class ExpertShapes;
    std::set<int> seen_;
    std::map<std::tuple<int64_t, int, int>, int> here_;
    int64_t floats_ = 0;
  };

  // describe(matrix, forms) adds what a matrix of the layer reads. All experts read what the first
  // one does.
  template <typename Describe>
  void add_layer(const ExpertsDesc& experts, const Describe& describe) {
    if (!experts.present()) return;
    shapes_.count = std::max(shapes_.count, experts.count);
    shapes_.chosen = std::max(shapes_.chosen, experts.chosen);
    shapes_.width = std::max(shapes_.width, experts.width);
    Forms inputs, gated;
    describe(experts.gate(0), inputs);
    describe(experts.up(0), inputs);
    describe(experts.down(0), gated);
    join(inputs, inputs_, shapes_.input_floats);
    join(gated, gated_, shapes_.gated_floats);
  }

  CudaShapes::Experts shapes() const {
    CudaShapes::Experts all = shapes_;
    all.inputs = buffers(inputs_);
    all.gated = buffers(gated_);
    return all;
  }

 private:
  using Counts = std::map<std::tuple<int64_t, int, int>, int>;

  static void join(const Forms& forms, Counts& most, int64_t& floats) {
    for (const auto& [shape, count] : forms.here_)
      most[shape] = std::max(most[shape], count);
    floats = std::max(floats, forms.floats_);
  }
  static std::vector<BufferShape> buffers(const Counts& counts) {
    std::vector<BufferShape> all;
    for (const auto& [shape, count] : counts)
      all.insert(all.end(), static_cast<size_t>(count),
                 {std::get<0>(shape), std::get<1>(shape), std::get<2>(shape)});
    return all;
  }

  CudaShapes::Experts shapes_;
  Counts inputs_, gated_;
};

}  // namespace walsh
