#include "model/fingerprint.h"

#include <fmt/format.h>

#include <vector>

#include "base/cpu.h"
#include "io/checksum.h"
#include "walsh/version.h"

namespace walsh {
namespace {

class Sum {
 public:
  template <typename Array>
  void add(const Array& values) {
    sum_.update(std::as_bytes(std::span(values.data(), values.size())));
  }
  void add(const Tensor& tensor) {
    add(tensor.data);
    for (const PassArrays& pass : tensor.pass)
      for (const auto& array :
           {pass.codes, pass.scales, pass.offsets, pass.sub_scales, pass.col_scales, pass.codebook})
        add(array);
  }
  void add(const Linear& matrix) {
    add(matrix.dense);
    add(matrix.bias);
    for (const auto& pass : matrix.passes) {
      add(pass->codes);
      add(pass->scales);
      add(pass->offsets);
      add(pass->col_factors);
      add(pass->codebook);
    }
  }
  Checksum digest() const { return sum_.digest(); }

 private:
  ChecksumStream sum_;
};

Checksum layer_sum(const Layer& layer) {
  Sum sum;
  for (const Linear& matrix : layer.matrices)
    sum.add(matrix);
  for (const auto& vector : layer.vectors)
    sum.add(vector);
  return sum.digest();
}

Checksum weights_sum(const Model& model) {
  const auto layers = static_cast<int64_t>(model.layers.size());
  std::vector<Checksum> sums(model.layers.size() + 1);
  model.pool().for_each(layers + 1, [&](int64_t i, int) {
    if (i < layers) {
      sums[static_cast<size_t>(i)] = layer_sum(model.layers[static_cast<size_t>(i)]);
      return;
    }
    Sum rest;
    rest.add(model.embedding.stored);
    rest.add(model.layer_embedding.stored);
    rest.add(model.head);
    for (const auto& vector : model.head_vectors)
      rest.add(vector);
    sums.back() = rest.digest();
  });
  return checksum(std::as_bytes(std::span(sums)));
}

}  // namespace

std::string fingerprint(const Model& model, int64_t positions) {
  const CacheTypes& cache = model.cache;
  return fmt::format("walsh {} weights {} cache {} {} {} positions {} activations {} {}", kVersion,
                     weights_sum(model).hex(), cache.keys->name, cache.values->name, cache.window,
                     positions, static_cast<int>(model.activations), isa_name(current_isa()));
}

}  // namespace walsh
