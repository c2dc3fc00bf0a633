// Tests layers with experts in the persistent kernel against single launches.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/cuda/memory_pool.h"
#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/weights/matrix.h"
#include "step_data.h"

namespace walsh::cuda {
namespace {

struct Shape {
  const char* format;
  int64_t hidden, width, shared_width;
  RouteRule rule;
  bool share = false, bias = false;
  const char* other = nullptr;  // format of the products before the experts; null: the same
};

RouteRule rule_of(int experts, int chosen) {
  RouteRule rule;
  rule.experts = experts;
  rule.chosen = chosen;
  return rule;
}

// Holds gate, up and down of several experts, whose arrays have one distance.
struct Experts {
  std::vector<std::vector<Matrix>> all;  // [expert][gate, up, down]

  Experts(const Format& format, int64_t count, int64_t hidden, int64_t width, uint64_t seed) {
    MemoryPool measured;
    allocate(format, count, hidden, width, measured);
    MemoryPool pool(measured.used());
    allocate(format, count, hidden, width, pool);
    Uploader uploader;
    Buffer staging;
    for (auto& expert : all) {
      for (Matrix& matrix : expert) {
        const bool down = &matrix == &expert[2];
        const RandomTensor host(format, matrix.rows, down ? width : hidden, seed++);
        fill_matrix(matrix, host.tensor, 0, uploader, staging);
        uploader.synchronize();
      }
    }
  }

  void allocate(const Format& format, int64_t count, int64_t hidden, int64_t width,
                MemoryPool& pool) {
    all.clear();
    const MemoryPool::Scope scope(pool);
    for (int64_t e = 0; e < count; ++e) {
      auto& expert = all.emplace_back();
      expert.push_back(allocate_matrix(format, 0, width, hidden));
      expert.push_back(allocate_matrix(format, 0, width, hidden));
      expert.push_back(allocate_matrix(format, 0, hidden, width));
    }
  }

  int64_t stride() const {
    return all.size() < 2 ? 0 : all[1][0].codes.as<std::byte>() - all[0][0].codes.as<std::byte>();
  }
};

// Computes mixed = U norm(x) and x += V mixed, as attention reads and writes x, then x +=
// experts(norm(x)).
class Layer {
 public:
  Layer(const Shape& s, uint64_t seed)
      : s_(s),
        format_(get_format(s.format)),
        experts_(format_, s.rule.experts, s.hidden, s.width, seed),
        shared_(format_, s.shared_width > 0 ? 1 : 0, s.hidden,
                std::max<int64_t>(16, s.shared_width), seed + 500),
        into_x_format_(get_format(s.other == nullptr ? s.format : s.other)),
        mixes_(upload_passes(into_x_format_, kMixed, s.hidden, seed + 601)),
        adds_(upload_passes(into_x_format_, s.hidden, kMixed, seed + 600)),
        gain_(to_device(random_values(s.hidden, seed + 602))),
        bias_(to_device(random_values(s.rule.experts, seed + 603, 0.2))),
        into_mixed_(into_x_format_, s.hidden),
        into_x_(into_x_format_, kMixed),
        into_experts_(format_, s.hidden),
        gated_(format_, s.width),
        of_shared_(format_, std::max<int64_t>(16, s.shared_width)) {
    const double size = 1.5 / std::sqrt(static_cast<double>(s.hidden));
    router_ = {DType::f32, s.rule.experts, s.hidden,
               to_device(random_values(s.rule.experts * s.hidden, seed + 604, size))};
    share_ = {DType::f32, 1, s.hidden, to_device(random_values(s.hidden, seed + 605, size))};
    gated_.forms[0].rotation.seed = 31;
    of_shared_.forms[0].rotation.seed = 37;
  }

  bool add_to(PersistentProgram& program, float* x) {
    const Matmul mixes = into_mixed_.product(mixes_, mixed_.as<float>()), adds = into_x(x);
    ExpertStep step;
    step.source = normed(x);
    step.forms = into_experts_.forms;
    step.router = &router_;
    step.share = s_.share ? &share_ : nullptr;
    step.rule = s_.rule;
    step.bias = s_.bias ? bias_.as<float>() : nullptr;
    step.stride = experts_.stride();
    step.expert = part_of(experts_.all[0], s_.width, gated_);
    if (s_.shared_width > 0) step.shared = part_of(shared_.all[0], s_.shared_width, of_shared_);
    step.stream = x;
    return program.multiply(normed(x), into_mixed_.forms, {&mixes, 1}) &&
           program.multiply(mixed_source(), into_x_.forms, {&adds, 1}) && program.experts(step);
  }

  // Computes the same with single launches.
  void launch(float* x, Stream stream) {
    const int64_t chosen = s_.rule.chosen;
    const Matmul mixes = into_mixed_.product(mixes_, mixed_.as<float>()), adds = into_x(x);
    prepare(normed(x), into_mixed_.forms, 1, stream);
    gemv({&mixes, 1}, 1, stream);
    prepare(mixed_source(), into_x_.forms, 1, stream);
    gemv({&adds, 1}, 1, stream);
    choose(x, stream);
    prepare(normed(x), into_experts_.forms, 1, stream);
    Matmul gate = product(experts_.all[0][0], into_experts_, gate_, s_.width);
    Matmul up = product(experts_.all[0][1], into_experts_, up_, s_.width);
    const Matmul firsts[] = {gate, up};
    multiply_experts(std::span<const Matmul>(firsts), experts_.stride(), batch(rows_), stream);
    Forms slots(format_, s_.width, chosen);
    slots.forms[0].rotation.seed = 31;
    prepare(gated(gate_, up_, s_.width), slots.forms, chosen, stream);
    const Matmul down = product(experts_.all[0][2], slots, results_, s_.hidden);
    multiply_experts(std::span<const Matmul>(&down, 1), experts_.stride(), batch(Buffer()), stream);
    if (s_.shared_width > 0) run_shared(stream);
    ExpertSum sum;
    sum.results = results_.as<float>();
    sum.slot = slot_.as<const int32_t>();
    sum.weights = weights_.as<const float>();
    sum.share = s_.share ? logits_.as<const float>() + s_.rule.experts : nullptr;
    sum.shared = s_.shared_width > 0;
    sum.out = branch_.as<float>();
    sum.stream = x;
    sum.m = 1;
    sum.width = s_.hidden;
    sum.chosen = static_cast<int>(chosen);
    sum_experts(sum, stream);
    synchronize(stream);  // slots.out ends here
  }

 private:
  static constexpr int64_t kMixed = 1024;

  static Buffer floats(int64_t count) { return Buffer(static_cast<uint64_t>(count) * 4); }

  InputSource mixed_source() const {
    return {mixed_.as<float>(), nullptr, nullptr, 0, kMixed, kMixed};
  }
  InputSource normed(const float* x) const {
    return {x, nullptr, gain_.as<float>(), 1e-5f, s_.hidden, s_.hidden};
  }
  static InputSource gated(const Buffer& gate, const Buffer& up, int64_t width) {
    return {gate.as<float>(), up.as<float>(), nullptr, 0, width, width};
  }
  Matmul into_x(float* x) const {
    Matmul product = into_x_.product(adds_, x);
    product.add = true;
    return product;
  }
  static Matmul product(const Matrix& matrix, const Forms& forms, const Buffer& y, int64_t ldy) {
    Matmul p;
    p.pass[0] = &matrix;
    p.input[0] = forms.forms[0].out;
    p.y = y.as<float>();
    p.ldy = ldy;
    return p;
  }
  ExpertStep::Part part_of(const std::vector<Matrix>& expert, int64_t width, const Forms& gated) {
    ExpertStep::Part part;
    part.width = width;
    part.gate = product(expert[0], into_experts_, Buffer(), width);
    part.up = product(expert[1], into_experts_, Buffer(), width);
    part.down_form = gated.forms[0];
    part.down = product(expert[2], gated, Buffer(), s_.hidden);
    return part;
  }

  void choose(const float* x, Stream stream) {
    InputForm form;
    form.rotation.kind = RotationKind::none;
    form.padded = form.stride = s_.hidden;
    form.rows = row_.as();
    prepare(normed(x), {&form, 1}, 1, stream);
    auto* logits = logits_.as<float>();
    const DenseMatmul products[] = {
        {&router_, row_.as<float>(), s_.hidden, nullptr, logits, s_.rule.experts, false},
        {&share_, row_.as<float>(), s_.hidden, nullptr, logits + s_.rule.experts, 1, false}};
    gemv(std::span<const DenseMatmul>(products), 1, stream);
    RouteCall call;
    call.rule = s_.rule;
    call.logits = logits;
    call.bias = s_.bias ? bias_.as<float>() : nullptr;
    call.m = 1;
    call.choices = choices_.as<int32_t>();
    call.weights = weights_.as<float>();
    route(call, {}, {rows_.as<int32_t>(), slot_.as<int32_t>(), items_.as<ExpertItem>()}, stream);
  }
  ExpertBatch batch(const Buffer& rows) const {
    ExpertBatch batch;
    batch.slots = s_.rule.chosen;
    batch.experts = s_.rule.experts;
    batch.items = items_.as<ExpertItem>();
    batch.rows = rows.as<const int32_t>();
    return batch;
  }
  void run_shared(Stream stream) {
    const Matmul firsts[] = {
        product(shared_.all[0][0], into_experts_, shared_gate_, s_.shared_width),
        product(shared_.all[0][1], into_experts_, shared_up_, s_.shared_width)};
    gemv(std::span<const Matmul>(firsts), 1, stream);
    prepare(gated(shared_gate_, shared_up_, s_.shared_width), of_shared_.forms, 1, stream);
    const Matmul down = product(shared_.all[0][2], of_shared_, branch_, s_.hidden);
    gemv({&down, 1}, 1, stream);
  }

  const Shape s_;
  const Format& format_;
  Experts experts_, shared_;
  const Format& into_x_format_;
  std::vector<Matrix> mixes_, adds_;
  Buffer mixed_ = floats(kMixed), gain_, bias_;
  Forms into_mixed_, into_x_, into_experts_, gated_, of_shared_;
  DenseMatrix router_, share_;
  // This is the result of single launches.
  Buffer row_ = floats(s_.hidden), logits_ = floats(s_.rule.experts + 1);
  Buffer choices_ = floats(s_.rule.chosen), weights_ = floats(s_.rule.chosen);
  Buffer rows_ = floats(s_.rule.chosen), slot_ = floats(s_.rule.chosen);
  Buffer items_{static_cast<uint64_t>(s_.rule.chosen) * sizeof(ExpertItem)};
  Buffer gate_ = floats(s_.rule.chosen * s_.width), up_ = floats(s_.rule.chosen * s_.width);
  Buffer results_ = floats(s_.rule.chosen * s_.hidden);
  Buffer shared_gate_ = floats(s_.shared_width + 1), shared_up_ = floats(s_.shared_width + 1);
  Buffer branch_ = floats(s_.hidden);
};

// Several tokens by one program, which is also recorded: the choice follows what is in x.
void expect_layers(const Shape& s, int layers, double tolerance) {
  SCOPED_TRACE(std::string(s.format) + ", " + std::to_string(s.rule.chosen) + " of " +
               std::to_string(s.rule.experts) + " experts of " + std::to_string(s.width) +
               " values, shared " + std::to_string(s.shared_width));
  std::vector<std::unique_ptr<Layer>> all;
  for (int i = 0; i < layers; ++i)
    all.push_back(std::make_unique<Layer>(s, 1000 * static_cast<uint64_t>(i)));
  const Buffer x(static_cast<uint64_t>(s.hidden) * sizeof(float));
  PersistentProgram program;
  for (const auto& layer : all)
    ASSERT_TRUE(layer->add_to(program, x.as<float>()));
  ASSERT_TRUE(program.finish());
  const OwnedStream stream;
  AlternateLaunches in_turn(program, stream.get());
  for (uint64_t token = 0; token < 3; ++token) {
    const auto start = random_values(s.hidden, 900 + token);
    copy_to_device(x.as(), start.data(), x.bytes(), nullptr);
    synchronize(nullptr);
    for (const auto& layer : all)
      layer->launch(x.as<float>(), nullptr);
    const auto expected = to_host<float>(x);
    std::vector<uint32_t> bits;
    for (int run = 0; run < launches(); ++run) {
      copy_to_device(x.as(), start.data(), x.bytes(), stream.get());
      stream.synchronize();
      in_turn.run(run);
      const auto got = to_host<float>(x);
      if (run == 0) bits = bits_of(got);
      ASSERT_EQ(bits_of(got), bits) << "token " << token << " run " << run;
      ASSERT_LT(relative_error(got, expected), tolerance) << "token " << token;
    }
  }
}

// This is for one layer, whose inputs are those of the launches but for the norm's rounding.
constexpr double kOneLayer = 2e-3;
// Roundings of int8 inputs differ after the first layer.
constexpr double kLayers = 0.05;

TEST(GpuStepExperts, AreThoseOfTheLaunchesInEveryCode) {
  WALSH_NEED_STEPS();
  for (const char* format : {"tq2", "tq3", "tq4", "itq3_s", "itq3_s8", "q4_0"}) {
    expect_layers({format, 512, 256, 0, rule_of(8, 2)}, 1, kOneLayer);
    expect_layers({format, 512, 256, 0, rule_of(8, 2)}, 3, kLayers);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(GpuStepExperts, MayHaveOtherCodesThanOtherMatrices) {
  WALSH_NEED_STEPS();
  const std::pair<const char*, const char*> mixes[] = {
      {"tq2", "tq4"}, {"tq3", "itq3_s"}, {"tq4", "tq3"}, {"q4_0", "tq3"}, {"itq3_s8", "tq2"}};
  for (const auto& [format, other] : mixes) {
    expect_layers({format, 1024, 384, 256, rule_of(16, 4), true, false, other}, 1, kOneLayer);
    expect_layers({format, 1024, 384, 0, rule_of(16, 4), false, false, other}, 3, kLayers);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Experts are few and many, small and large, and down has as many k-tiles as need a phase of their
// own; the last is 30b-a3b's shape.
TEST(GpuStepExperts, MayBeFewOrManySmallOrLarge) {
  WALSH_NEED_STEPS();
  for (const Shape& s :
       {Shape{"tq3", 2048, 768, 0, rule_of(128, 8)}, Shape{"tq3", 1024, 128, 0, rule_of(512, 10)},
        Shape{"tq4", 1024, 3584, 0, rule_of(4, 2)}, Shape{"tq3", 2048, 32, 0, rule_of(16, 1)},
        Shape{"tq2", 9216, 512, 0, rule_of(4, 2)}, Shape{"tq3", 768, 400, 0, rule_of(12, 3)}}) {
    expect_layers(s, 1, kOneLayer);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(GpuStepExperts, AreChosenByEveryRule) {
  WALSH_NEED_STEPS();
  for (const bool sigmoid : {false, true}) {
    for (const int groups : {1, 4}) {
      for (const bool normalized : {false, true}) {
        RouteRule rule = rule_of(32, 4);
        rule.sigmoid = sigmoid;
        rule.groups = groups;
        rule.groups_chosen = groups > 1 ? 2 : 1;
        rule.group_best = groups > 1 ? 2 : 1;
        rule.normalized = normalized;
        rule.scale = 1.25f;
        expect_layers({"tq3", 1024, 256, 0, rule, false, sigmoid}, 1, kOneLayer);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(GpuStepExperts, MayHaveASharedOneOfAnyWidth) {
  WALSH_NEED_STEPS();
  for (const bool share : {false, true}) {
    expect_layers({"tq3", 1024, 256, 256, rule_of(8, 2), share}, 1, kOneLayer);
    expect_layers({"tq4", 2048, 1408, 5632, rule_of(60, 4), share}, 1, kOneLayer);
    expect_layers({"q4_0", 768, 272, 112, rule_of(8, 3), share}, 3, kLayers);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(GpuStepExperts, SaysNoToWhatNoStepCanDo) {
  WALSH_NEED_STEPS();
  const Buffer x(512 * 4);
  const auto says = [&](const Shape& s) {
    PersistentProgram program;
    return Layer(s, 1).add_to(program, x.as<float>()) && program.finish();
  };
  EXPECT_TRUE(says({"tq3", 512, 256, 0, rule_of(80, 2)}));
  EXPECT_FALSE(says({"tq3", 512, 256, 0, rule_of(80, 64)})) << "chosen";
  EXPECT_FALSE(says({"tq3", 512, 264, 0, rule_of(8, 2)})) << "half a tile";
  EXPECT_FALSE(says({"tc3:h", 512, 256, 0, rule_of(8, 2)})) << "trellis codes";
}

}  // namespace
}  // namespace walsh::cuda
