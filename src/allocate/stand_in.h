// Makes errors that stand for those of any format. A code that is quick to encode rounds a matrix
// once, and its error is brought to the size that the format declares. Balancing and error feedback
// shape it as they shape the errors of all formats.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "arch/plan.h"
#include "quantize/pipeline/compressor.h"

namespace walsh {

// Returns the relative squared error on Gaussian weights that a format declares. Throws usage if it
// declares none.
double declared_nmse(const Format& format);

// Returns the format that errs for all of these, which are all rotated or all not.
const Format& stand_in_for(std::span<const Format* const> formats);

class StandIn {
 public:
  // The recipe of `compressor` has as its type stand_in_for() the formats.
  StandIn(std::unique_ptr<Compressor> compressor, ThreadPool& pool);

  // Returns the unquantized model, in the basis of erring(), with all matrices as f32 if `wide`.
  std::unique_ptr<WeightSource> plain(bool wide = false) const;
  // Returns the matrix `original` of plain() as f32 with an error of this relative size. The first
  // call for a matrix encodes it; the code is kept.
  Tensor erring(const std::string& name, const Tensor& original, double nmse);
  uint64_t bytes() const { return bytes_; }  // the kept codes take this many bytes

 private:
  const Tensor& encoded(const std::string& name);
  // Decodes rows [begin, end) of an encoded matrix to `out`, and undoes the balancing of columns.
  void decode(const Tensor& coded, std::span<const float> scales, int64_t begin, int64_t end,
              float* out) const;
  // Returns the factors by which calibrated balancing multiplied this matrix's rows, because
  // another matrix's input (of o or down) was balanced. Otherwise returns none.
  std::vector<float> row_factors(const std::string& name, int64_t rows);

  std::unique_ptr<Compressor> compressor_;
  ThreadPool& pool_;
  ModelPlan plan_;
  std::map<std::string, int> fed_sites_;  // matrices whose rows are balanced have an entry
  std::map<std::string, Tensor> encoded_;
  uint64_t bytes_ = 0;
};

}  // namespace walsh
