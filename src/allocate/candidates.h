// Every tensor of a checkpoint in every format that it may get, encoded once and kept, and models
// made of any choice among them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "quantize/pipeline/compressor.h"

namespace walsh {

// The candidate chosen for each of Candidates::tensors().
using Assignment = std::vector<int>;

// Opens the checkpoint for a recipe: quantize/pipeline/open.h with its calibration, if any.
using OpenCompressor = std::function<std::unique_ptr<Compressor>(const Recipe&)>;

inline constexpr size_t kMaxCandidates = 16;

// One matrix, or the matrices of one kind of all experts of a layer, which get one format because
// the effect of a single expert is too small to measure.
struct CandidateTensor {
  std::string name;  // "*" stands for the number of an expert
  std::vector<std::string> members;
  int64_t rows = 0, cols = 0;  // of each member
  bool linear = false;         // a matrix of the layers; otherwise embedding or head
  uint64_t weights() const {
    return members.size() * static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
  }
};

class Candidates {
 public:
  // Candidate i gives every free tensor the format formats[i]. Free tensors are the matrices of the
  // layers that no rule of `base` names and, with `whole_file`, the embedding and a separate head,
  // whose last candidate is to stay unquantized. Throws usage unless all formats treat the
  // balancing of channels alike (all are rotated, or none).
  Candidates(const OpenCompressor& open, Recipe base, std::vector<const Format*> formats,
             bool whole_file, ThreadPool& pool);

  const std::vector<CandidateTensor>& tensors() const { return tensors_; }
  const std::vector<const Format*>& formats() const { return formats_; }
  // Number of candidates of a tensor.
  int count(size_t tensor) const;
  // The stored format, with the profile that the tensor (its first member) needs.
  const Format& format(size_t tensor, int candidate) const;
  uint64_t bytes(size_t tensor, int candidate) const;
  double nmse(size_t tensor, int candidate);  // encodes the tensor; the mean over its members
  // The factors by which balancing multiplies the columns of a matrix; empty if none.
  std::span<const float> column_scales(const std::string& name, int candidate) const {
    return compressor(candidate).column_scales(name);
  }

  uint64_t linear_weights() const;      // in the layers, including tensors that are not free
  uint64_t fixed_linear_bytes() const;  // of the tensors that are not free

  // The unquantized model, in the basis of decoded().
  std::unique_ptr<WeightSource> plain() const;
  // The decoded candidate of a matrix as f32, in the basis of the checkpoint or of the folded
  // model.
  Tensor decoded(const std::string& name, int candidate);
  // The model of an assignment; valid as long as this object.
  std::unique_ptr<WeightSource> source(const Assignment& assignment);
  // The recipe that quantizes according to an assignment; its type is that of most weights.
  Recipe recipe(const Assignment& assignment) const;

 private:
  friend class AssignedSource;
  Compressor& compressor(int candidate) const {
    return *compressors_[static_cast<size_t>(candidate)];
  }
  const Tensor& encoded(const std::string& name, int candidate);
  Recipe candidate_recipe(int candidate) const;
  void check_formats() const;
  void find_gain_readers();

  ThreadPool& pool_;
  Recipe base_;
  std::vector<const Format*> formats_;
  bool whole_file_;
  std::vector<std::unique_ptr<Compressor>> compressors_;  // one per candidate
  std::vector<CandidateTensor> tensors_;
  std::map<std::string, size_t> index_;  // by the names of the members
  // Also holds norms and fixed matrices, which depend on the head's candidate.
  std::map<std::pair<std::string, int>, Tensor> encoded_;
  // from a norm to a tensor that reads its balanced output
  std::map<std::string, size_t> gain_readers_;
};

// Replaces some tensors of another source.
class SubstitutedSource : public WeightSource {
 public:
  explicit SubstitutedSource(WeightSource& base) : base_(base) {}

  void replace(const std::string& name, Tensor tensor) { replaced_[name] = std::move(tensor); }
  void restore() { replaced_.clear(); }

  std::string path() const override { return base_.path(); }
  std::string_view config_json() const override { return base_.config_json(); }
  std::string_view generation_config_json() const override {
    return base_.generation_config_json();
  }
  std::string_view tokenizer_json() const override { return base_.tokenizer_json(); }
  std::string_view tokenizer_config_json() const override { return base_.tokenizer_config_json(); }
  bool contains(const std::string& name) const override { return base_.contains(name); }
  std::vector<std::string> names() const override { return base_.names(); }
  const Format& format_of(const std::string& name) const override;
  Tensor load(const std::string& name) override;
  void release(const std::string& name) override { base_.release(name); }
  bool folded() const override { return base_.folded(); }
  StoredForm form_of(const std::string& name) const override;

 private:
  WeightSource& base_;
  std::map<std::string, Tensor> replaced_;
};

}  // namespace walsh
