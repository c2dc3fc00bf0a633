#include "quantize/pipeline/pipeline.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "codec/codec.h"
#include "codec/encode/bounds.h"
#include "io/checksum.h"
#include "quantize/pipeline/resume.h"
#include "quantize/pipeline/run_time.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// This much of a mapped tensor is resident at a time.
constexpr size_t kWriteChunk = size_t{16} << 20;

std::vector<std::span<const std::byte>> stored_arrays(const Tensor& tensor) {
  if (tensor.format->dense) return {tensor.data};
  std::vector<std::span<const std::byte>> arrays;
  for (int pass = 0; pass < tensor.format->passes; ++pass) {
    for (const PassField& field : pass_fields(*tensor.format, pass, tensor.rows, tensor.cols))
      arrays.push_back(tensor.pass[pass].*field.array);
  }
  return arrays;
}

// Writes the arrays of one tensor and returns their checksum.
Checksum write_tensor(ModelOutput& output, const TensorPlan& plan,
                      std::span<const std::span<const std::byte>> arrays) {
  const auto specs = array_specs(*plan.format, plan.rows, plan.cols);
  if (arrays.size() != specs.size()) {
    throw Error(ErrorCode::internal, plan.name, "arrays do not fit the format");
  }
  ChecksumStream sum;
  for (size_t i = 0; i < arrays.size(); ++i) {
    for (size_t at = 0; at < arrays[i].size(); at += kWriteChunk) {
      const auto part = arrays[i].subspan(at, std::min(kWriteChunk, arrays[i].size() - at));
      sum.update(part);
      output.write(plan, i, part, at);
    }
  }
  return sum.digest();
}

// Splits one piece of memory into the arrays of a tensor.
std::vector<std::span<const std::byte>> split(const TensorPlan& plan,
                                              std::span<const std::byte> content) {
  std::vector<std::span<const std::byte>> arrays;
  for (const ArraySpec& spec : array_specs(*plan.format, plan.rows, plan.cols)) {
    arrays.push_back(content.first(spec.bytes));
    content = content.subspan(spec.bytes);
  }
  return arrays;
}

struct Written {
  Checksum checksum;
  double nmse = 0;
  bool resumed = false;
};

// Holds the work that is done before a tensor is loaded. It may be done while the previous tensor
// is still being encoded.
struct Start {
  std::optional<Checksum> key;               // the journal finds the tensor by it
  std::optional<ResumeFile::Record> record;  // an earlier run has left it
  bool begun = false;                        // Compressor::begin has begun it
  std::exception_ptr error;                  // This is thrown when the tensor is due.
};

// Starts tensors in their order. While a device encodes one, those after it are started, up to the
// next one that a device encodes, too. Dense tensors between them are written in their turn.
// However a run ends, nothing goes on being encoded.
class Starts {
 public:
  // `strange` is called at the first tensor with a key if the journal has records, but not of this
  // tensor.
  Starts(Compressor& source, ResumeFile* resume, RunTime& time, std::function<void()> strange)
      : source_(source), resume_(resume), time_(time), strange_(std::move(strange)) {}
  ~Starts() { source_.abandon(); }
  Starts(const Starts&) = delete;
  Starts& operator=(const Starts&) = delete;

  // Returns the start of the next tensor.
  Start next() {
    if (ahead_.empty()) start();
    Start result = std::move(ahead_.front());
    ahead_.pop_front();
    bool passed = true;  // it is about the tensor before the next one to start
    while (result.begun + begun() == 1 && passed && ahead_.size() < kMostAhead && more()) {
      start();
      const bool dense = source_.tensors()[started_ - 1].format->dense;
      passed = dense && !ahead_.back().error;
    }
    return result;
  }

 private:
  static constexpr size_t kMostAhead = 4;

  bool more() const { return started_ < source_.tensors().size(); }
  int64_t begun() const {
    return std::count_if(ahead_.begin(), ahead_.end(), [](const Start& s) { return s.begun; });
  }
  void start() {
    const TensorPlan& plan = source_.tensors()[started_++];
    Start& result = ahead_.emplace_back();
    try {
      source_.measure(plan);
      time_.measured(plan);
      if (resume_) result.key = source_.encoding_key(plan.name);
      if (result.key) result.record = find(*result.key, plan);
      if (!result.record) result.begun = source_.begin(plan.name);
    } catch (...) {
      result.error = std::current_exception();
    }
  }

  std::optional<ResumeFile::Record> find(const Checksum& key, const TensorPlan& plan) {
    auto record = resume_->find(key, plan.bytes());
    if (const auto strange = std::exchange(strange_, nullptr); strange && !record) strange();
    return record;
  }

  Compressor& source_;
  ResumeFile* resume_;
  RunTime& time_;
  std::function<void()> strange_;
  size_t started_ = 0;
  std::deque<Start> ahead_;
};

// Encodes a tensor and writes it, or takes it from `resume`, which may be null.
Written encode_and_write(ModelOutput& output, Compressor& source, const TensorPlan& plan,
                         const Start& start, ResumeFile* resume) {
  if (start.error) std::rethrow_exception(start.error);
  if (start.record) {
    const auto arrays = split(plan, {start.record->content.data(), start.record->content.size()});
    return {write_tensor(output, plan, arrays), start.record->nmse, true};
  }
  const Tensor tensor = source.load(plan.name);
  const auto arrays = stored_arrays(tensor);
  const double nmse = source.nmse(plan.name);
  if (start.key) resume->add(*start.key, nmse, arrays);
  return {write_tensor(output, plan, arrays), nmse, false};
}

// Tells the user what happens to the tensors of an earlier run.
void note_strange_records(const ResumeFile& journal, const std::string& path,
                          const NoteFunction& note) {
  if (!note || journal.records() == 0) return;
  note(resume_name(path) + ": has " + std::to_string(journal.records()) +
       (journal.records() == 1 ? " tensor" : " tensors") +
       " of an interrupted run with other settings or of another model, which this run cannot use "
       "and deletes when it is complete");
}

// Returns the journal of a run if a type takes long to encode, or if an earlier run has left a
// journal, which is removed when the output is complete. Returns null if there is none.
std::unique_ptr<ResumeFile> open_journal(const std::vector<TensorPlan>& tensors,
                                         const std::string& path, const NoteFunction& note) {
  const bool slow = std::any_of(tensors.begin(), tensors.end(), [](const TensorPlan& plan) {
    return codec_of(*plan.format).slow_to_encode;
  });
  if (slow) return std::make_unique<ResumeFile>(path, note);
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(resume_name(path), unreadable)) return nullptr;
  auto journal = std::make_unique<ResumeFile>(path, nullptr);
  note_strange_records(*journal, path, note);
  return journal;
}

// Refuses to write a file that WalshFile::open would refuse.
void check_rotations(const std::vector<TensorPlan>& tensors, uint64_t file_bytes) {
  OrthogonalWork work;
  for (const TensorPlan& plan : tensors) {
    for (int pass = 0; pass < plan.format->passes; ++pass)
      work.add(plan.rotation[pass], padded_cols(*plan.format, plan.cols));
    work.add(plan.output_rotation, plan.rows);
  }
  if (work.total() <= most_orthogonal_work(file_bytes)) return;
  throw Error(ErrorCode::usage, "--rotation qr",
              "the matrices of this model's rotations would take far longer to make than the file "
              "to read: use a smaller --block");
}

QuantizeSummary summarize(const Compressor& source, uint64_t file_bytes) {
  QuantizeSummary s;
  s.file_bytes = file_bytes;
  for (const TensorPlan& t : source.tensors()) {
    const uint64_t weights = static_cast<uint64_t>(t.rows) * static_cast<uint64_t>(t.cols);
    s.all_weights += weights;
    if (!t.linear) continue;
    s.linear_weights += weights;
    s.linear_bytes += t.bytes();
  }
  return s;
}

}  // namespace

OutputKind parse_output_kind(std::string_view name) {
  if (name == "gguf") return OutputKind::file;
  if (name == "hf") return OutputKind::folder;
  throw Error(ErrorCode::usage, std::string(name), "no kind of output, expected gguf or hf");
}

std::unique_ptr<ModelOutput> make_output(Compressor& source, const OutputOptions& options) {
  auto output = options.kind == OutputKind::file ? make_file_output(source)
                                                 : make_folder_output(source, options.shard_bytes);
  check_rotations(source.tensors(), output->bytes());
  return output;
}

QuantizeSummary predict(Compressor& source, const OutputOptions& options) {
  return summarize(source, make_output(source, options)->bytes());
}

QuantizeSummary quantize_to_file(Compressor& source, const std::string& path,
                                 const std::function<void(const QuantizeProgress&)>& progress,
                                 const NoteFunction& note, const OutputOptions& options) {
  source.settle_formats();
  const auto output = make_output(source, options);
  output->open(path);
  const auto& tensors = source.tensors();
  const std::unique_ptr<ResumeFile> resume = open_journal(tensors, path, note);
  WrittenTensors all;
  std::vector<MissedBound> missed;
  RunTime time(source);
  Starts starts(source, resume.get(), time, [&] { note_strange_records(*resume, path, note); });
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorPlan& plan = tensors[i];
    const Written written = encode_and_write(*output, source, plan, starts.next(), resume.get());
    all.checksums.push_back(written.checksum);
    all.errors.push_back(static_cast<float>(written.nmse));
    if (!source.recipe().calibration && misses_bound(*plan.format, written.nmse))
      missed.push_back({plan.name, plan.format, written.nmse});
    source.release(plan.name);
    time.written(plan, written.resumed);
    if (!progress) continue;
    progress({i + 1, tensors.size(), &plan, written.nmse, written.resumed, time.seconds_left()});
  }
  output->commit(all);
  if (resume) resume->remove();
  if (note && !source.uncalibrated().empty()) {
    note("--calibrate: " + std::to_string(source.uncalibrated().size()) +
         " matrices of experts are rounded without the text, because too few of its tokens reached "
         "them");
  }
  const Recipe& recipe = source.recipe();
  if (note && options.kind == OutputKind::folder && !recipe.type->dense && !recipe.embed_type)
    note("a folder keeps the embedding as it is; a file has it in 8 bits");
  QuantizeSummary summary = summarize(source, output->bytes());
  summary.missed = std::move(missed);
  return summary;
}

}  // namespace walsh
