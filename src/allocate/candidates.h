// Every tensor of a checkpoint in every format that it may get, each encoded once and kept, and
// models made of any choice among them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "quantize/pipeline/compressor.h"

namespace walsh {

// Index of a candidate for each of Candidates::tensors().
using Assignment = std::vector<int>;

// Opens the checkpoint for a recipe: quantize/pipeline/open.h with whatever belongs to it
// (calibration).
using OpenCompressor = std::function<std::unique_ptr<Compressor>(const Recipe&)>;

inline constexpr size_t kMaxCandidates = 16;

// A matrix, or those of one kind of all experts of a layer, which get one format: what one of them
// does alone is too little to be measured.
struct CandidateTensor {
  std::string name;  // with "*" for the number of an expert
  std::vector<std::string> members;
  int64_t rows = 0, cols = 0;  // of each
  bool linear = false;         // in the layers; otherwise the embedding or the head
  uint64_t weights() const {
    return members.size() * static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
  }
};

class Candidates {
 public:
  // Candidate i gives every free tensor the format formats[i]. Free are the matrices of the layers
  // that no rule of `base` names, and with `whole_file` the embedding and a separate head, which
  // have one more candidate, the last: to stay as they are. Throws usage unless all formats are
  // rotated the same way as far as the balancing of channels is concerned.
  Candidates(const OpenCompressor& open, Recipe base, std::vector<const Format*> formats,
             bool whole_file, ThreadPool& pool);

  const std::vector<CandidateTensor>& tensors() const { return tensors_; }
  const std::vector<const Format*>& formats() const { return formats_; }
  // Of candidates of a tensor.
  int count(size_t tensor) const;
  // The format stored, with the profile that the tensor (the first of its members) needs.
  const Format& format(size_t tensor, int candidate) const;
  uint64_t bytes(size_t tensor, int candidate) const;
  double nmse(size_t tensor, int candidate);  // encodes; the mean of the members
  // What the balancing multiplies the columns of a matrix with; empty if nothing.
  std::span<const float> column_scales(const std::string& name, int candidate) const {
    return compressor(candidate).column_scales(name);
  }

  uint64_t linear_weights() const;      // in the layers, also those that are not free
  uint64_t fixed_linear_bytes() const;  // of those that are not free

  // The unquantized model, in the basis of decoded().
  std::unique_ptr<WeightSource> plain() const;
  // The decoded candidate of a matrix as f32 in the checkpoint's (or the folded model's) basis.
  Tensor decoded(const std::string& name, int candidate);
  // The model of an assignment; valid as long as this object.
  std::unique_ptr<WeightSource> source(const Assignment& assignment);
  // The recipe that quantizes so, its type being the one of most weights.
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
  std::vector<std::unique_ptr<Compressor>> compressors_;  // per candidate
  std::vector<CandidateTensor> tensors_;
  std::map<std::string, size_t> index_;  // by the members' names
  // Also norms and fixed matrices, which a candidate of the head may change.
  std::map<std::pair<std::string, int>, Tensor> encoded_;
  std::map<std::string, size_t> gain_readers_;  // norm to a tensor that reads its balanced output
};

// A source in which some tensors are replaced.
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
