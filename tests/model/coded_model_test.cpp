// Tests models in coded formats against the same weights decoded to float32: handling of rotations,
// residual passes, padding and shared inputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/synthetic.h"
#include "model_support.h"

namespace walsh {
namespace {

// Gives another source's tensors, chosen by name from two of them, or decoded to float32.
class TestSource : public WeightSource {
 public:
  explicit TestSource(WeightSource& a, WeightSource* b = nullptr, std::string b_part = {})
      : a_(a), b_(b), b_part_(std::move(b_part)) {}

  std::string path() const override { return "test"; }
  std::string_view config_json() const override { return a_.config_json(); }
  std::string_view generation_config_json() const override { return {}; }
  std::string_view tokenizer_json() const override { return {}; }
  std::string_view tokenizer_config_json() const override { return {}; }
  bool contains(const std::string& name) const override {
    return name != missing && a_.contains(name);
  }
  std::vector<std::string> names() const override {
    auto list = a_.names();
    if (!extra.empty()) list.push_back(extra);
    return list;
  }
  void release(const std::string&) override {}
  StoredForm form_of(const std::string& name) const override {
    return decode ? StoredForm{.format = &dense_format(DType::f32)} : source_of(name).form_of(name);
  }
  const Format& format_of(const std::string& name) const override { return *form_of(name).format; }

  Tensor load(const std::string& name) override {
    Tensor tensor = source_of(name).load(name);
    if (name == transposed) std::swap(tensor.rows, tensor.cols);
    return decode ? decoded(tensor) : tensor;
  }

  bool decode = false;
  std::string missing, extra, transposed;

 private:
  static Tensor decoded(const Tensor& tensor) {
    auto values =
        std::make_shared<std::vector<float>>(static_cast<size_t>(tensor.rows * tensor.cols));
    decode_rows(tensor, 0, tensor.rows, values->data());
    Tensor result;
    result.format = &dense_format(DType::f32);
    result.rows = tensor.rows;
    result.cols = tensor.cols;
    result.data = std::as_bytes(std::span(*values));
    result.owner = values;
    return result;
  }

  WeightSource& source_of(const std::string& name) const {
    return b_ != nullptr && name.find(b_part_) != std::string::npos ? *b_ : a_;
  }

  WeightSource& a_;
  WeightSource* b_;
  std::string b_part_;
};

SyntheticSource synthetic(const Format& type, const Format& ends) {
  return SyntheticSource("tiny", {&type, &ends, &ends});
}

Model load(WeightSource& source, ThreadPool& pool, ActivationMode mode) {
  return Model::load(source, parse_config(source.config_json(), "test"), {&pool, mode, {}});
}

std::vector<int32_t> some_tokens(size_t count) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(i * i * 31 + i * 7) % 500);
  return tokens;
}

std::vector<std::vector<float>> logits_of(WeightSource& source, ActivationMode mode,
                                          int threads = 1) {
  ThreadPool pool(threads);
  const Model model = load(source, pool, mode);
  Session session(model, {64});
  return test::all_logits(session, some_tokens(19));
}

// Returns the norm of the difference over the norm.
double distance(const std::vector<std::vector<float>>& a,
                const std::vector<std::vector<float>>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      difference += std::pow(a[i][j] - b[i][j], 2);
      norm += b[i][j] * b[i][j];
    }
  }
  return std::sqrt(difference / norm);
}

class CodedModel : public testing::TestWithParam<const Format*> {};

TEST_P(CodedModel, EqualsItsDecodedWeights) {
  const Format& format = *GetParam();
  SyntheticSource source = synthetic(format, dense_format(DType::f16));
  TestSource decoded(source);
  decoded.decode = true;
  const auto expected = logits_of(decoded, ActivationMode::f32);
  ASSERT_GT(std::abs(expected.back()[0]), 0);
  // The kernels round the product of scale and sub-scale to fp16.
  const double bound = format.code[0].sub_group > 0 ? 2e-3 : 2e-4;
  EXPECT_LT(distance(logits_of(source, ActivationMode::f32), expected), bound);
  if (format.dense) return;
  // One plane costs 0.6 % per product; with two the levels rounded to int8 are what is left.
  EXPECT_LT(distance(logits_of(source, ActivationMode::i8), expected), 0.04);
  EXPECT_LT(distance(logits_of(source, ActivationMode::i8x2), expected), 0.02);
}

TEST(CodedModelParts, ProductsByLookUpComeNearTheDecodedOnes) {
  for (const char* name : {"pq3", "pq3:layer"}) {
    SyntheticSource source = synthetic(get_format(name), dense_format(DType::f16));
    const auto decoded = logits_of(source, ActivationMode::automatic);
    const auto looked_up = logits_of(source, ActivationMode::lut);
    EXPECT_LT(distance(looked_up, decoded), 0.08) << name;
    EXPECT_GT(distance(looked_up, decoded), 1e-5) << "the tables are rounded";
    EXPECT_EQ(logits_of(source, ActivationMode::lut, 3), looked_up) << "threads change nothing";
  }
  SyntheticSource scalar = synthetic(get_format("tq3"), dense_format(DType::f16));
  EXPECT_EQ(logits_of(scalar, ActivationMode::lut), logits_of(scalar, ActivationMode::automatic));
}

std::vector<const Format*> every_format() {
  std::vector<const Format*> list;
  for (const Format& format : all_formats())
    list.push_back(&format);
  return list;
}

std::string format_name(const testing::TestParamInfo<const Format*>& info) {
  std::string name(info.param->name);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name + "_" + std::to_string(info.index);
}

INSTANTIATE_TEST_SUITE_P(Formats, CodedModel, testing::ValuesIn(every_format()), format_name);

TEST(CodedModelParts, EmbeddingAndHeadMayBeCoded) {
  for (const char* ends : {"tq3", "q8_0", "tq4+2"}) {
    SyntheticSource source = synthetic(get_format("tq4"), get_format(ends));
    TestSource decoded(source);
    decoded.decode = true;
    EXPECT_LT(
        distance(logits_of(source, ActivationMode::f32), logits_of(decoded, ActivationMode::f32)),
        2e-4)
        << ends;
  }
}

TEST(CodedModelParts, TiedHeadReadsTheCodedEmbedding) {
  SyntheticSource tied = synthetic(get_format("tq4"), get_format("tq3"));
  TestSource source(tied), decoded(tied);
  source.missing = decoded.missing = "lm_head.weight";  // listed, never read
  decoded.decode = true;
  const auto run = [](TestSource& from) {
    ThreadPool pool(1);
    ModelConfig config = parse_config(from.config_json(), "test");
    config.tied_head = true;
    config.head.weight = config.embedding;
    const Model model = Model::load(from, config, {&pool, ActivationMode::f32, {}});
    Session session(model, {64});
    return test::all_logits(session, some_tokens(9));
  };
  EXPECT_LT(distance(run(source), run(decoded)), 2e-4);
}

TEST(CodedModelParts, MatricesOfOneInputMayDifferInFormat) {
  SyntheticSource tq3 = synthetic(get_format("tq3"), dense_format(DType::bf16));
  for (const char* other : {"q8_0", "bf16", "itq3_s", "tq4+4"}) {
    SyntheticSource b = synthetic(get_format(other), dense_format(DType::bf16));
    TestSource mixed(tq3, &b, "k_proj");
    TestSource decoded(tq3, &b, "k_proj");
    decoded.decode = true;
    EXPECT_LT(
        distance(logits_of(mixed, ActivationMode::f32), logits_of(decoded, ActivationMode::f32)),
        2e-4)
        << other;
    ThreadPool pool(1);
    const Model model = load(mixed, pool, ActivationMode::automatic);
    EXPECT_GE(model.input(0, 0).forms.size(), 2u) << other;
    EXPECT_EQ(model.input(0, 2).forms.size(), 1u) << "gate and up share one";
    EXPECT_EQ(model.type_name(), "tq3");
  }
}

TEST(CodedModelParts, ThreadsDoNotChangeABit) {
  SyntheticSource source = synthetic(get_format("tq4+2"), get_format("tq4"));
  const auto one = logits_of(source, ActivationMode::automatic, 1);
  EXPECT_EQ(logits_of(source, ActivationMode::automatic, 2), one);
  EXPECT_EQ(logits_of(source, ActivationMode::automatic, 5), one);
}

TEST(CodedModelParts, SizesFollowFromTheFormats) {
  SyntheticSource source = synthetic(get_format("tq4"), dense_format(DType::f16));
  ThreadPool pool(1);
  const Model model = load(source, pool, ActivationMode::automatic);
  // Rows of 256 take 132 bytes; of 344, padded to 352, 176 bytes of codes and 3 scales.
  const double bits_256 = 132 * 8, bits_344 = (176 + 6) * 8;
  const double rows_256 = 256 + 128 + 128 + 256 + 2 * 344, rows_344 = 256;
  EXPECT_NEAR(model.bits_per_weight(),
              (bits_256 * rows_256 + bits_344 * rows_344) / (256 * rows_256 + 344 * rows_344),
              1e-9);
  const double linear_bytes = 2 * (bits_256 * rows_256 + bits_344 * rows_344) / 8;
  const double ends = 500 * 256 * 2;
  EXPECT_EQ(static_cast<double>(model.model_bytes()), linear_bytes + 2 * ends + 5 * 256 * 4);
  // Panels round 344 rows up to 352.
  EXPECT_NEAR(static_cast<double>(model.bytes_per_token()), linear_bytes + ends, 6000);
  EXPECT_EQ(model.type_name(), "tq4");
}

void expect_load_error(TestSource& source, const std::string& part) {
  ThreadPool pool(1);
  try {
    load(source, pool, ActivationMode::automatic);
    FAIL() << "expected an error with: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_THAT(e.what(), testing::HasSubstr(part));
  }
}

TEST(Load, RefusesMissingUnexpectedAndMisshapenTensors) {
  SyntheticSource base = synthetic(get_format("tq3"), dense_format(DType::f16));
  TestSource source(base);
  source.missing = "model.layers.1.mlp.up_proj.weight";
  expect_load_error(source, source.missing);
  source.missing.clear();
  source.extra = "model.layers.0.self_attn.q_proj.bias";
  expect_load_error(source, source.extra);
  source.extra = "model.layers.1.self_attn.rotary_emb.inv_freq";
  source.transposed = "model.layers.0.self_attn.k_proj.weight";
  expect_load_error(source, source.transposed);
  expect_load_error(source, "[256, 128], expected [128, 256]");
  source.transposed.clear();
  ThreadPool pool(1);
  EXPECT_NO_THROW(load(source, pool, ActivationMode::automatic)) << "rotary buffers are inert";
}

TEST(Load, ReportsProgressPerTensor) {
  SyntheticSource source = synthetic(get_format("tq3"), dense_format(DType::f16));
  ThreadPool pool(1);
  size_t calls = 0;
  LoadOptions options{&pool, ActivationMode::automatic, {}};
  options.progress = [&](size_t done, size_t total, const std::string& name) {
    EXPECT_EQ(done, calls++);
    EXPECT_EQ(total, 21u);
    EXPECT_FALSE(name.empty());
  };
  Model::load(source, parse_config(source.config_json(), "test"), options);
  EXPECT_EQ(calls, 21u);
}

TEST(Load, FormatsAreKnownBeforeLoading) {
  SyntheticSource source = synthetic(get_format("tq4+2"), dense_format(DType::bf16));
  for (const std::string& name : source.names())
    EXPECT_EQ(&source.format_of(name), source.load(name).format) << name;
  EXPECT_THROW(source.format_of("none"), Error);
}

TEST(Synthetic, SameSeedSameBytesAndUnknownShapeIsRefused) {
  SyntheticSource a = synthetic(get_format("itq3_s"), dense_format(DType::f16));
  SyntheticSource b = synthetic(get_format("itq3_s"), dense_format(DType::f16));
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const Tensor x = a.load(name), y = b.load(name);
  EXPECT_TRUE(std::ranges::equal(x.pass[0].codes, y.pass[0].codes));
  EXPECT_TRUE(std::ranges::equal(x.pass[0].scales, y.pass[0].scales));
  const Tensor other = a.load("model.layers.0.mlp.down_proj.weight");
  EXPECT_FALSE(std::ranges::equal(x.pass[0].codes, other.pass[0].codes));
  const Format& f16 = dense_format(DType::f16);
  EXPECT_THROW(SyntheticSource("3b", {&f16, &f16, &f16}), Error);
}

}  // namespace
}  // namespace walsh
