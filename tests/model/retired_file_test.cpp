// Tests a file of an earlier version whose matrices have codes that walsh no longer writes. It was
// made from tests/data/models/llama31-tiny by that version.
#include <gmock/gmock.h>

#include "arch/plan.h"
#include "codec/kernels.h"
#include "model/model_support.h"
#include "quantize/file/verify.h"
#include "weights/walsh_file.h"

namespace walsh {
namespace {

constexpr const char* kFile = WALSH_TEST_DATA "/retired_codes.gguf";

// Gives the file with its matrices decoded from the stored bytes by the reference decoder.
class Decoded : public WeightSource {
 public:
  explicit Decoded(WalshFile& file) : file_(file) {}

  std::string path() const override { return file_.path(); }
  std::string_view config_json() const override { return file_.config_json(); }
  std::string_view generation_config_json() const override { return {}; }
  std::string_view tokenizer_json() const override { return {}; }
  std::string_view tokenizer_config_json() const override { return {}; }
  bool contains(const std::string& name) const override { return file_.contains(name); }
  std::vector<std::string> names() const override { return file_.names(); }
  const Format& format_of(const std::string& name) const override {
    const Format& format = *file_.find(name)->format;
    return format.dense ? format : get_format("f32");
  }
  Tensor load(const std::string& name) override {
    const StoredTensor& stored = *file_.find(name);
    if (stored.format->dense) return file_.load(name);
    Tensor coded;
    coded.format = stored.format;
    coded.rows = stored.rows;
    coded.cols = stored.cols;
    coded.rotation[0] = stored.rotation[0];
    bind_arrays(coded, stored.arrays);
    auto values =
        std::make_shared<std::vector<float>>(static_cast<size_t>(stored.rows * stored.cols));
    decode_rows(coded, 0, stored.rows, values->data());
    Tensor tensor;
    tensor.format = &get_format("f32");
    tensor.rows = stored.rows;
    tensor.cols = stored.cols;
    tensor.data = std::as_bytes(std::span(*values));
    tensor.owner = values;
    return tensor;
  }
  void release(const std::string&) override {}

 private:
  WalshFile& file_;
};

TEST(RetiredFile, IsReadWithANote) {
  const auto file = WalshFile::open(kFile);
  ASSERT_EQ(file->notes().size(), 1u);
  for (const char* name : {"tc2.5:L14", "tc3:v2", "tc5", "tc2:L8:blocks", "8.5 bits"})
    EXPECT_THAT(file->notes().front(), testing::HasSubstr(name));
  int retired = 0;
  for (const StoredTensor& stored : file->tensors()) {
    const StoredForm form = file->form_of(stored.name);
    const Tensor tensor = file->load(stored.name);
    EXPECT_EQ(form.format, tensor.format) << stored.name;
    EXPECT_EQ(&file->format_of(stored.name), tensor.format) << stored.name;
    EXPECT_FALSE(tensor.format->retired) << stored.name;
    if (!stored.format->retired) continue;
    ++retired;
    EXPECT_EQ(why_not({.cuda = true}, *tensor.format), "") << stored.name;
  }
  EXPECT_EQ(retired, 20);
}

TEST(RetiredFile, HasTheErrorsThatWereMeasuredWhenItWasMade) {
  ThreadPool pool(2);
  const std::string folder = test::tiny_model("llama31-tiny");
  CheckpointSource checkpoint = CheckpointSource::open(folder);
  const ModelPlan plan = read_plan(checkpoint.config_json(), folder);
  const auto file = WalshFile::open(kFile);
  for (const StoredTensor& stored : file->tensors()) {
    if (stored.format->dense) continue;
    const double nmse = measure_nmse(*file, checkpoint, plan, stored.name, pool);
    EXPECT_NEAR(nmse / stored.nmse, 1, 2e-3) << stored.name << ' ' << stored.format->name;
  }
}

// Returns the largest difference of logits between the file and its decoded weights, in parts of
// the largest logit.
double difference_of(ActivationMode activations) {
  ThreadPool pool(2);
  const auto file = WalshFile::open(kFile);
  Decoded decoded(*file);
  const ModelConfig config = parse_config(file->config_json(), kFile);
  LoadOptions options;
  options.pool = &pool;
  options.activations = activations;
  const Model model = Model::load(*file, config, options);
  const Model plain = Model::load(decoded, config, options);
  const std::vector<int32_t> tokens = test::random_tokens(24, config.vocab, 7);
  const auto logits_of = [&](const Model& m) {
    Session session(m, {32});
    return test::all_logits(session, tokens);
  };
  const test::Rows got = logits_of(model), want = logits_of(plain);
  float most = 0, difference = 0;
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (size_t i = 0; i < want[t].size(); ++i) {
      most = std::max(most, std::abs(want[t][i]));
      difference = std::max(difference, std::abs(got[t][i] - want[t][i]));
    }
  }
  return difference / most;
}

TEST(RetiredFile, RunsAsItsDecodedWeightsDo) {
  EXPECT_LT(difference_of(ActivationMode::f32), 3e-3);
  EXPECT_LT(difference_of(ActivationMode::automatic), 0.06);  // with what int8 activations add
}

}  // namespace
}  // namespace walsh
