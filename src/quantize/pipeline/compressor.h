// Compresses a checkpoint tensor by tensor while it is read. This is the one path behind both
// `walsh quantize` and `--quantize` at load time, so both give the same bits.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "arch/plan.h"
#include "base/thread_pool.h"
#include "codec/encode/cuda/encoder.h"
#include "io/checksum.h"
#include "quantize/feedback/calibration.h"
#include "quantize/feedback/curvature_files.h"
#include "quantize/pipeline/background.h"
#include "quantize/recipe/recipe.h"
#include "quantize/source/fold.h"
#include "weights/checkpoint_source.h"

namespace walsh {

// Says how one tensor will be compressed, which is known before any work.
struct TensorPlan {
  std::string name;
  int64_t rows = 0, cols = 0;
  DType source = DType::f32;
  const Format* format = nullptr;
  int site = -1;  // a matrix reads this activation; vectors have -1
  // The columns of a matrix that is never coded get the balancing of this site.
  int plain_site = -1;
  int expert = -1;       // the matrix belongs to it; -1 means none
  bool linear = false;   // it counts for the bits per weight of the linear layers
  int folded_site = -1;  // the balancing of this site is folded into a norm
  int fed_site = -1;     // the balancing of this site scales the rows of a feeder and its bias
  Rotation rotation[2];
  Rotation output_rotation = kNoRotation;

  uint64_t bytes() const { return tensor_bytes(*format, rows, cols); }
};

class Compressor : public WeightSource {
 public:
  // Throws bad_input if the checkpoint lacks a tensor of the plan, has one that the plan does not
  // know, or one of a wrong shape. Throws usage if a rule matches nothing or the recipe's rotation
  // cannot be folded into this model.
  Compressor(Checkpoint checkpoint, ModelPlan plan, Recipe recipe, ThreadPool& pool);

  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  // From now on encodes on this GPU the tensors that it can encode; the bytes are the same. Throws
  // usage if it is not there.
  void use_gpu(int device);
  // Lets begin() search tiles on these devices, one tensor on each, instead of on the GPU. They
  // outlive this object.
  void search_on(std::vector<detail::TileDevice*> devices);

  // Uses the statistics that a recipe with a calibration text needs before anything is loaded;
  // several compressors that load the same layer at the same time may share them.
  void calibrate(std::shared_ptr<InputStatistics> statistics);
  // From now on also weighs errors by what they cost at outputs, measured on the calibration's
  // text.
  void use_curvature(std::shared_ptr<const CurvatureFiles> curvature);

  // Returns the plans; settle_formats() may still change formats.
  const std::vector<TensorPlan>& tensors() const { return tensors_; }
  // Chooses the scales of matrices whose code has a choice (Codec::finer_scales). A trellis code
  // gets a scale per row and block where the variance of rows is far from a factor per row times
  // one per column block. Reads and rotates all of them, so it is a step of its own, before
  // anything is loaded or written; later calls do nothing.
  void settle_formats();
  const Recipe& recipe() const { return recipe_; }
  // Returns the site whose inputs have to be measured on the calibration text before a tensor is
  // loaded, or -1 if there is none.
  int measured_site(const TensorPlan& plan) const;
  // Measures the layer that the tensor is in, if that is needed. It is a step of its own because it
  // can take long. If it is left out, loading measures.
  void measure(const TensorPlan& plan);
  // Returns a checksum of all that decides the bytes of a tensor that takes long to encode
  // (Codec::slow_to_encode), and nothing for others.
  std::optional<Checksum> encoding_key(const std::string& name);
  // Returns the factors by which the balancing multiplies the columns of a matrix, [cols]; there
  // are none if it is not balanced.
  std::span<const float> column_scales(const std::string& name);
  // Returns the matrices whose column_scales stand in no norm of the compressed model, because they
  // have a feeder.
  std::vector<std::string> separately_scaled() const;
  // Returns the NMSE of a coded tensor that was loaded, in the balanced basis, and 0 for others.
  double nmse(const std::string& name) const;

  // Returns whether the tensor is a table that tokens look up.
  bool is_looked_up(const TensorPlan& plan) const {
    return plan.site > static_cast<int>(plan_.sites.size()) && !is_ahead(plan.site);
  }
  // Returns whether a site belongs to the layer that predicts ahead, which is neither measured nor
  // balanced.
  bool is_ahead(int site) const {
    return site >= static_cast<int>(sites_.size() - plan_.ahead.size());
  }
  // Returns where the checkpoint has a tensor of a model that is not folded.
  CheckpointSource::Place place_of(const std::string& name) const { return source_.place_of(name); }
  // Returns the matrices of experts that were loaded and encoded without feedback, because too few
  // tokens of the calibration text reached them.
  const std::set<std::string>& uncalibrated() const { return uncalibrated_; }

  std::string path() const override { return source_.path(); }
  std::string_view config_json() const override {
    return folded() ? std::string_view(folded_config_) : source_.config_json();
  }
  std::string_view generation_config_json() const override {
    return source_.generation_config_json();
  }
  std::string_view tokenizer_json() const override { return source_.tokenizer_json(); }
  std::string_view tokenizer_config_json() const override {
    return source_.tokenizer_config_json();
  }
  // Returns notes, which also tell what the recipe asks for without any effect on this model.
  std::vector<std::string> notes() const override;
  bool contains(const std::string& name) const override { return index_.contains(name); }
  std::vector<std::string> names() const override;
  const Format& format_of(const std::string& name) const override;
  Tensor load(const std::string& name) override;
  // Begins to encode a tensor that load() will be asked for, on a thread of its own: while a device
  // searches the tiles of one tensor, the host prepares another. Returns false and does nothing if
  // no device can do that or none is free. load() reports what goes wrong; if a device lacks the
  // memory for several tensors at once, the rest follow each other. Throws what loading throws
  // before it encodes.
  bool begin(const std::string& name);
  // Ends the work on tensors that were begun and not loaded.
  void abandon();
  void encode_on(const Device& device) override;
  void release(const std::string& name) override { source_.release(origin(name)); }
  bool folded() const override { return fold_ != nullptr; }
  StoredForm form_of(const std::string& name) const override;

 private:
  void add(const std::string& name, const Format* wanted, int site, bool linear);
  void add_all();
  void prepare_fold();
  const std::string& origin(const std::string& name) const;
  const Format& kept_format(const std::string& name, const Format& source, bool vector) const;
  // Returns a tensor of the checkpoint or of the folded model.
  Tensor read_plain(const std::string& name);
  // Returns the same with its rows or columns scaled and its outputs rotated if the plan says so.
  Tensor read(const std::string& name);
  void check_shape(const std::string& name, const Tensor& source) const;
  void refuse_unknown();
  // Refuses NaN and infinity in a dense tensor.
  void check_finite(const std::string& name, const Tensor& tensor) const;
  void decide_balancing();
  void balance_norm(size_t site);
  void balance_feeder(size_t site);
  bool all_rotated(const Site& site) const;
  const std::vector<float>& scales(int site);
  std::vector<float> balance(const Site& site, std::vector<float> sizes);
  Calibration& calibration();
  bool fed_back(const TensorPlan& plan) const;
  struct Feedback {
    // These are null where no errors are fed back.
    std::shared_ptr<const ErrorFeedback> inputs, outputs;
  };
  Feedback feedback(const TensorPlan& plan);
  bool fed_back_above(const TensorPlan& plan) const;
  std::shared_ptr<const ErrorFeedback> output_feedback(const TensorPlan& plan);
  std::vector<float> gain(const Site& site);
  Tensor folded_gain(const TensorPlan& plan);
  double misfit(const TensorPlan& plan);
  // Calls body(read_rows) with the rows of a matrix, whose columns are multiplied by `scales`
  // unless these are empty. Errors get the matrix's name.
  template <typename Body>
  void with_rows(const TensorPlan& plan, const Tensor& source, std::span<const float> scales,
                 const Body& body);
  struct Encoded {
    Tensor tensor;
    double nmse = 0;
  };
  // Encodes a tensor by encode_tensor.
  Encoded encode_rows(const TensorPlan& plan, const Tensor& source, std::span<const float> scales,
                      const Feedback& feedback, detail::TileDevice* device, ThreadPool& pool);
  Tensor encode(const TensorPlan& plan, const Tensor& source);
  Tensor encode_on_gpu(const TensorPlan& plan, const Tensor& source);

  struct Searcher {
    detail::TileDevice* device;
    std::unique_ptr<ThreadPool> pool;
  };
  // Holds a tensor whose tiles a device is searching.
  struct Begun {
    Searcher* searcher = nullptr;
    Tensor source;
    std::span<const float> scales;
    Feedback feedback;
    Encoded encoded;
    std::unique_ptr<Background> work;  // it ends before the others do
  };
  Searcher* free_searcher(const Format& format);
  Tensor finish(const TensorPlan& plan, std::unique_ptr<Begun> begun);

  CheckpointSource source_;
  ModelPlan plan_;
  // The sites are those of the plan, then the head, the embeddings, and the plan's `ahead`.
  std::vector<Site> sites_;
  Recipe recipe_;
  StepBudget rule_steps_{kRuleSteps};
  ThreadPool& pool_;
  std::unique_ptr<ResidualFold> fold_;  // RotateAt::residual has one
  std::optional<Calibration> calibration_;
  std::shared_ptr<const CurvatureFiles> curvature_;  // null means that there are none
  std::string folded_config_;
  std::vector<TensorPlan> tensors_;
  std::map<std::string, size_t> index_;
  bool settled_ = false;
  std::vector<bool> balanced_;  // each site has one
  // Each site has its scales, which are computed on first use.
  std::vector<std::optional<std::vector<float>>> scales_;
  std::map<std::string, double> nmse_;
  std::set<std::string> uncalibrated_;
  std::unique_ptr<cuda::GpuEncoder> gpu_;
  int gpu_index_ = 0;
  bool keep_on_gpu_ = false;  // matrices that a model on the GPU multiplies with stay there
  std::vector<Searcher> searchers_;
  bool alone_ = false;  // there is no memory for several tensors at once
  std::map<std::string, std::unique_ptr<Begun>> begun_;
};

// Decodes rows [begin, end) of a dense matrix to floats, and multiplies column c by scales[c]
// unless `scales` is empty.
void read_scaled_rows(const Tensor& matrix, std::span<const float> scales, int64_t begin,
                      int64_t end, float* out);

}  // namespace walsh
