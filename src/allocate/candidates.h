// Lists every tensor of a checkpoint with the formats that it may get, their sizes, and the recipe
// of any choice among them. Sizes and recipes are known without encoding anything.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "quantize/pipeline/compressor.h"

namespace walsh {

// Element t is the candidate that is chosen for Candidates::tensors()[t].
using Assignment = std::vector<int>;

// Opens the checkpoint for a recipe by quantize/pipeline/open.h, with the recipe's calibration, if
// any.
using OpenCompressor = std::function<std::unique_ptr<Compressor>(const Recipe&)>;

inline constexpr size_t kMaxCandidates = 16;

// This is one matrix, or the matrices of one kind of all experts of a layer: they get one format
// because the effect of a single expert is too small to measure.
struct CandidateTensor {
  std::string name;  // "*" stands for the number of an expert
  std::vector<std::string> members;
  int64_t rows = 0, cols = 0;  // every member has this shape
  bool linear = false;         // the layers have the matrix; otherwise it is embedding or head
  uint64_t weights() const {
    return members.size() * static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
  }
};

class Candidates {
 public:
  // Candidate i gives every free tensor the format formats[i]. The matrices of the layers are free
  // unless a rule of `base` names them; with `whole_file` so are the embedding and a separate head,
  // whose last candidate is to stay unquantized. Throws usage unless all formats treat the
  // balancing of channels alike (all are rotated, or none).
  Candidates(const OpenCompressor& open, Recipe base, std::vector<const Format*> formats,
             bool whole_file);

  const std::vector<CandidateTensor>& tensors() const { return tensors_; }
  const std::vector<const Format*>& formats() const { return formats_; }
  // Returns the number of candidates of a tensor.
  int count(size_t tensor) const;
  // Returns the stored format, with the profile that the tensor (its first member) needs. The last
  // candidate of a tensor that may stay unquantized has the source's format.
  const Format& format(size_t tensor, int candidate) const;
  uint64_t bytes(size_t tensor, int candidate) const;

  // Returns the number of all weights in the layers, also of tensors that are not free.
  uint64_t linear_weights() const;
  uint64_t fixed_linear_bytes() const;  // these are the bytes of tensors that are not free

  // Returns the recipe with which stand_in_for() the formats encodes all of them.
  Recipe stand_in_recipe() const;
  // Returns the recipe that quantizes according to an assignment; its type is that of most weights.
  Recipe recipe(const Assignment& assignment) const;

 private:
  Compressor& compressor(int candidate) const {
    return *compressors_[static_cast<size_t>(candidate)];
  }
  Recipe candidate_recipe(int candidate) const;
  void check_formats() const;

  Recipe base_;
  std::vector<const Format*> formats_;
  bool whole_file_;
  std::vector<std::unique_ptr<Compressor>> compressors_;  // each candidate has one
  std::vector<CandidateTensor> tensors_;
  std::map<std::string, size_t> index_;  // its keys are the names of the members
};

}  // namespace walsh
