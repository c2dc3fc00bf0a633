// Tests products of experts that make their inputs and add up their results on a GPU: they give the
// same bits as with separate launches.
#include <gtest/gtest.h>

#include "base/cuda/graph.h"
#include "codec/kernels.h"
#include "expert_weights.h"

namespace walsh::cuda {
namespace {

// Holds results of the last product and their sums.
struct Results {
  std::vector<uint32_t> products, sums;
};

struct Tail {
  const Format& format;
  ExpertShape shape;  // of down: rows are hidden values, cols are those of gate and up
  int64_t m, slots;
  ExpertWeights weights;
  RoutedRows routed;
  Buffer gate, up, y, out, share, arrived;
  std::vector<Activations> inputs;
  std::vector<InputForm> forms;
  Matmul product;

  Tail(const Format& f, const ExpertShape& s, int64_t rows)
      : format(f),
        shape(s),
        m(rows),
        slots(rows * s.chosen),
        weights(f, s, 1),
        routed(s, rows, false, 2),
        gate(to_device(random_values(slots * s.cols, 3, 3))),
        up(to_device(random_values(slots * s.cols, 4, 3))),
        y(static_cast<uint64_t>(slots * s.rows) * sizeof(float)),
        out(static_cast<uint64_t>(rows * s.rows) * sizeof(float)),
        share(to_device(random_values(rows, 5))),
        arrived(kSumCounters * sizeof(int32_t), true) {
    const int64_t padded = divide_up(s.cols, 32) * 32;
    inputs.reserve(2);
    for (int pass = 0; pass < f.passes; ++pass) {
      Activations& x =
          inputs.emplace_back(slots, divide_up(padded, kPaddedColumns) * kPaddedColumns,
                              f.rotation_block ? 128 : 32, f.activation_planes);
      InputForm& form = forms.emplace_back();
      form.rotation = f.rotation_block
                          ? Rotation{.block = 128, .seed = 7u + static_cast<unsigned>(pass)}
                          : Rotation{.kind = RotationKind::none};
      form.padded = padded;
      form.out = &x;
      product.pass[pass] = &weights.device[0][static_cast<size_t>(pass)];
      product.input[pass] = &x;
    }
    product.bias = weights.device_bias[0].as<float>();
    product.y = y.as<float>();
    product.ldy = s.rows;
  }

  InputSource source() const {
    InputSource source;
    source.x = gate.as<float>();
    source.up = up.as<float>();
    source.ldx = source.width = shape.cols;
    return source;
  }
  ExpertSum sum() const {
    ExpertSum sum;
    sum.results = y.as<float>();
    sum.slot = routed.slot.as<int32_t>();
    sum.weights = routed.weights.as<float>();
    sum.share = share.as<float>();
    sum.shared = true;
    sum.out = out.as<float>();
    sum.m = m;
    sum.width = shape.rows;
    sum.chosen = static_cast<int>(shape.chosen);
    return sum;
  }
  ExpertTail tail() const {
    ExpertTail tail;
    tail.makes_inputs = true;
    tail.source = source();
    tail.forms = forms;
    tail.sum = {sum(), routed.row.as<const int32_t>(), arrived.as<int32_t>()};
    return tail;
  }
  void start(Stream stream) const {
    const auto before = random_values(m * shape.rows, 6);
    copy_to_device(out.as(), before.data(), out.bytes(), stream);
    fill_zero(y.as(), y.bytes(), stream);
    synchronize(stream);
  }
  Results results() const { return {bits_of(to_host<float>(y)), bits_of(to_host<float>(out))}; }
};

void expect_tail(const Format& format, const ExpertShape& shape, int64_t m) {
  SCOPED_TRACE(std::string(format.name) + ", " + std::to_string(m) + " rows");
  const Tail t(format, shape, m);
  const ExpertBatch batch = t.routed.batch(shape, m, false);
  t.start(nullptr);
  prepare(t.source(), t.forms, t.slots, nullptr);
  multiply_experts({&t.product, 1}, t.weights.stride, batch, nullptr);
  sum_experts(t.sum(), nullptr);
  const Results expected = t.results();
  for (int again = 0; again < 2; ++again) {
    t.start(nullptr);
    const ExpertTail tail = t.tail();
    multiply_experts({&t.product, 1}, t.weights.stride, batch, nullptr, &tail);
    const Results got = t.results();
    ASSERT_EQ(got.products, expected.products);
    ASSERT_EQ(got.sums, expected.sums);
  }
}

TEST(GpuExpertTail, HasTheBitsOfTheLaunchesThatItSaves) {
  WALSH_NEED_GPU();
  for (const Format& format : all_formats()) {
    if (format.dense || !has_kernel(format, Kernel::gpu_products)) continue;
    for (const int64_t m : {1, 2, 4, 9, 16})
      expect_tail(format, {9, 3, 136, 512}, m);
    if (HasFatalFailure()) return;
  }
  for (const int64_t m : {1, 2, 16})
    expect_tail(get_format("tq3"), {128, 8, 2048, 768}, m);
}

// A replay has choice, first product and last product, as a step has them: choices differ from
// replay to replay, and the last product asks for them before the first one has ended.
TEST(GpuExpertTail, FollowsTheChoicesOfAReplay) {
  WALSH_NEED_GPU();
  const Format& format = get_format("tq3");
  for (const int64_t m : {1, 4, 16}) {
    const ExpertShape down{128, 8, 512, 768}, up{128, 8, 768, 512};
    Tail t(format, down, m);
    const ExpertWeights first_weights(format, up, 300);
    const Activations x = upload(random_inputs(m, up.cols, 128, format.activation_planes, 8), m);
    Matmul first;
    first.pass[0] = &first_weights.device[0][0];
    first.input[0] = &x;
    first.y = t.gate.as<float>();
    first.ldy = up.rows;
    RouteCall call;
    call.rule.experts = static_cast<int>(down.experts);
    call.rule.chosen = static_cast<int>(down.chosen);
    call.logits = t.routed.logits.as<float>();
    call.m = m;
    call.choices = t.routed.choices.as<int32_t>();
    call.weights = t.routed.weights.as<float>();
    const ExpertTail tail = t.tail();
    const OwnedStream stream;
    const auto step = [&](bool apart) {
      route(call, t.routed.plan,
            {t.routed.row.as<int32_t>(), t.routed.slot.as<int32_t>(),
             t.routed.items.as<ExpertItem>()},
            stream.get());
      multiply_experts({&first, 1}, first_weights.stride, t.routed.batch(up, m, true),
                       stream.get());
      if (apart) stream.synchronize();
      multiply_experts({&t.product, 1}, t.weights.stride, t.routed.batch(down, m, false),
                       stream.get(), &tail);
    };
    step(true);
    stream.synchronize();
    const Graph graph = Graph::record(stream.get(), [&] { step(false); });
    for (uint64_t seed = 30; seed < 40; ++seed) {
      const auto logits = random_values(m * down.experts, seed);
      copy_to_device(t.routed.logits.as(), logits.data(), t.routed.logits.bytes(), stream.get());
      t.start(stream.get());
      step(true);
      stream.synchronize();
      const Results direct = t.results();
      t.start(stream.get());
      graph.launch(stream.get());
      stream.synchronize();
      const Results replayed = t.results();
      ASSERT_EQ(replayed.products, direct.products) << m;
      ASSERT_EQ(replayed.sums, direct.sums) << m;
    }
  }
}

}  // namespace
}  // namespace walsh::cuda
