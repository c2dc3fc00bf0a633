// Reads files of llama.cpp's llama-imatrix (GGUF), which stand in place of a calibration text.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arch/plan.h"
#include "codec/feedback/input_statistics.h"
#include "io/gguf.h"

namespace walsh {

// Returns the header of such a file, or null for any other file. It refers to the bytes.
std::shared_ptr<const GgufContent> read_imatrix(std::span<const std::byte> bytes,
                                                std::string_view where);

// Gives the mean squares of the inputs of matrices. The file says nothing about products of two
// different inputs, which therefore count as zero. Inputs of matrices that the file lacks count as
// equally large.
class ImatrixStatistics : public InputStatistics {
 public:
  // `header` is that of `file`. `model_type` is that of config.json, which tells how llama.cpp
  // calls the matrices of `plan`. Throws bad_input naming `where` and the tensor for sums that do
  // not fit the matrices, or if the file has nothing about this model.
  ImatrixStatistics(const GgufContent& header, std::span<const std::byte> file, std::string where,
                    std::string_view model_type, ModelPlan plan);

  const InputMoments& moments(int site) override { return expert_moments(site, -1); }
  const InputMoments& expert_moments(int site, int expert) override;
  std::string note() const override { return note_; }

 private:
  struct Measured {
    std::vector<double> sums;    // these sum squares, [experts][width]
    std::vector<double> counts;  // each expert got this many tokens
  };

  void add(const GgufContent& header, std::span<const std::byte> file, const GgufTensor& sums,
           const std::string& matrix);
  const Measured* find(int site) const;

  std::string where_, note_;
  ModelPlan plan_;
  // The key is the name of a matrix, with "*" for the expert.
  std::map<std::string, Measured> measured_;
  std::string layer_;  // the moments of this layer are kept
  std::map<std::pair<int, int>, InputMoments> kept_;
};

}  // namespace walsh
