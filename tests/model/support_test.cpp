// Tests what a device refuses, and when: every combination of device, format, rotation and options.
#include "model/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "codec/kernels.h"
#include "codec/trellis/trellis_profiles.h"
#include "model/synthetic.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr Device kCpu{}, kGpu{true, 0};

// Returns all formats, and the profiles of trellis formats.
std::vector<const Format*> formats_and_profiles() {
  std::vector<const Format*> all;
  for (const Format& format : all_formats()) {
    all.push_back(&format);
    if (format.kind != CodeKind::trellis) continue;
    all.push_back(&fast_trellis_profile(format));
    all.push_back(&trellis_profile(format, format.trellis.state_bits, true));
  }
  return all;
}

StoredForm form_with(const Format& format, RotationKind kind, int block) {
  StoredForm form{.format = &format};
  for (int pass = 0; pass < format.passes; ++pass)
    form.rotation[pass] = {kind, block, 42, true};
  return form;
}

LoadOptions options_of(const Device& device, ActivationMode activations = ActivationMode::automatic,
                       bool rotate_weights = false) {
  LoadOptions options;
  options.device = device;
  options.activations = activations;
  options.rotate_weights = rotate_weights;
  return options;
}

TEST(Support, TheCpuRunsEveryFormatHoweverItIsRotated) {
  for (const Format* format : formats_and_profiles()) {
    for (const RotationKind kind : {RotationKind::hadamard, RotationKind::qr, RotationKind::none}) {
      const StoredForm form = form_with(*format, kind, 1024);
      EXPECT_THAT(why_not(form, options_of(kCpu)), IsEmpty()) << format->name;
      EXPECT_THAT(why_not_embedding(form, kCpu), IsEmpty()) << format->name;
    }
  }
}

// Returns whether it is a trellis code that GPUs decode: levels are sums of bytes, states have 16
// bits.
bool is_byte_trellis(const std::string& name) {
  const bool bytes = name.ends_with(":h") || name.find(":h:") != name.npos;
  return bytes && name.find(":L") == name.npos;
}

// The GPU has kernels for scalar codes, product codes and some trellis codes, with Hadamard
// rotations or none.
TEST(Support, AGpuRunsAFormatOrNamesIt) {
  for (const Format* format : formats_and_profiles()) {
    const std::string name(format->name);
    const bool known = format->kind != CodeKind::trellis || is_byte_trellis(name);
    for (const RotationKind kind : {RotationKind::hadamard, RotationKind::qr, RotationKind::none}) {
      for (const int block : {32, 256, 1024}) {
        const StoredForm form = form_with(*format, kind, block);
        const std::string matrix = why_not(form, options_of(kGpu));
        EXPECT_EQ(matrix, why_not_embedding(form, kGpu));
        if (!known) {
          EXPECT_THAT(matrix, HasSubstr("for " + name + ": use --device cpu"));
        } else if (kind == RotationKind::qr && !format->dense) {
          EXPECT_THAT(matrix, HasSubstr("qr"));
        } else {
          EXPECT_THAT(matrix, IsEmpty()) << format->name;
        }
      }
    }
    StoredForm both = form_with(*format, RotationKind::hadamard, 128);
    both.output = {RotationKind::hadamard, 128, 1, true};
    EXPECT_EQ(why_not(both, options_of(kGpu)).empty(), format->dense) << format->name;
  }
}

TEST(Support, WeightsAreRotatedBackByBlocksOfUpTo256AndCodesOfUpTo4Bits) {
  for (const Format* format : formats_and_profiles()) {
    for (const int block : {32, 128, 256, 512, 1024}) {
      const LoadOptions options = options_of(kGpu, ActivationMode::automatic, true);
      const StoredForm form = form_with(*format, RotationKind::hadamard, block);
      bool few_bits = format->kind == CodeKind::scalar;
      for (const ScalarCode& code : format->code)
        few_bits &= code.bits <= 4;
      const bool runs = format->dense || (few_bits && block <= 256);
      EXPECT_EQ(why_not(form, options).empty(), runs) << format->name << ' ' << block;
      if (!runs) {
        EXPECT_THAT(why_not(form, options), HasSubstr(format->name));
      }
    }
    // A matrix that is not rotated needs no inverse rotation.
    const StoredForm plain = form_with(*format, RotationKind::none, 128);
    EXPECT_EQ(why_not(plain, options_of(kGpu, ActivationMode::automatic, true)),
              why_not(plain, options_of(kGpu)));
  }
}

TEST(Support, OptionsThatADeviceLacksAreNamed) {
  using Mode = ActivationMode;
  for (const Mode mode : {Mode::automatic, Mode::i8, Mode::i8x2, Mode::f16, Mode::f32, Mode::lut}) {
    const bool cpu_only = mode == Mode::f32 || mode == Mode::lut;
    EXPECT_EQ(why_not(options_of(kCpu, mode)).empty(), mode != Mode::f16);
    EXPECT_EQ(why_not(options_of(kGpu, mode)).empty(), !cpu_only);
    EXPECT_THAT(why_not(options_of(kCpu, mode, true)), HasSubstr("--rotate weights"));
    EXPECT_EQ(why_not(options_of(kGpu, mode, true)).empty(), mode == Mode::automatic);
  }
}

// Fails the test when something is read.
class Unread : public SyntheticSource {
 public:
  using SyntheticSource::SyntheticSource;
  Tensor load(const std::string& name) override {
    ADD_FAILURE() << name << " was read";
    return SyntheticSource::load(name);
  }
  Rotation qr_head;
  StoredForm form_of(const std::string& name) const override {
    StoredForm form = SyntheticSource::form_of(name);
    if (name == "lm_head.weight" && qr_head.kind == RotationKind::qr) form.rotation[0] = qr_head;
    return form;
  }
};

struct Refusal {
  ErrorCode code = ErrorCode::internal;
  std::string where, reason;
};

std::optional<Refusal> refusal(Unread& source, const LoadOptions& options) {
  ThreadPool pool(1);
  LoadOptions all = options;
  all.pool = &pool;
  try {
    Model::load(source, parse_config(source.config_json(), source.path()), all);
  } catch (const Error& e) {
    return Refusal{e.code(), e.where(), e.reason()};
  }
  return std::nullopt;
}

// This holds for layers, embedding and head; a tensor of the model is named, and nothing has been
// read.
TEST(Support, AModelIsRefusedBeforeItIsRead) {
  const Format& dense = get_format("f16");
  const ModelConfig config =
      parse_config(Unread("tiny", {&dense, &dense, &dense}).config_json(), "tiny");
  const std::string names[] = {config.layers[0].matrices[0].weight, config.embedding,
                               config.head.weight};
  for (const Format* format : formats_and_profiles()) {
    const std::string reason = why_not(kGpu, *format);
    if (reason.empty()) continue;
    for (size_t part = 0; part < 3; ++part) {
      const Format* types[3] = {&dense, &dense, &dense};
      types[part] = format;
      Unread source("tiny", {types[0], types[1], types[2]});
      const auto refused = refusal(source, options_of(kGpu));
      ASSERT_TRUE(refused) << format->name;
      EXPECT_EQ(refused->code, ErrorCode::usage);
      EXPECT_EQ(refused->where, source.path() + ": tensor " + names[part]);
      EXPECT_EQ(refused->reason, reason);
    }
  }
}

TEST(Support, OptionsAndRotationsAreRefusedBeforeAModelIsRead) {
  const Format &coded = get_format("tq3"), &full = get_format("tq3:full"),
               &plain = get_format("q4_0");
  Unread source("tiny", {&coded, &coded, &coded});
  const LoadOptions cases[] = {
      options_of(kCpu, ActivationMode::f16), options_of(kGpu, ActivationMode::f32),
      options_of(kGpu, ActivationMode::lut), options_of(kCpu, ActivationMode::automatic, true),
      options_of(kGpu, ActivationMode::i8, true)};
  for (const LoadOptions& options : cases) {
    const auto refused = refusal(source, options);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, ErrorCode::usage);
    EXPECT_EQ(refused->where, "device " + options.device.name());
    EXPECT_EQ(refused->reason, why_not(options));
  }
  source.qr_head = {RotationKind::qr, 128, 1, true};
  const auto qr = refusal(source, options_of(kGpu));
  ASSERT_TRUE(qr);
  EXPECT_THAT(qr->where, HasSubstr("lm_head.weight"));
  Unread wide("tiny", {&full, &coded, &coded});
  EXPECT_THAT(refusal(wide, options_of(kGpu, ActivationMode::automatic, true))->reason,
              HasSubstr("blocks of up to 256, tq3:full has 1024"));
  Unread unrotated("tiny", {&plain, &plain, &plain});
  EXPECT_THAT(refusal(unrotated, options_of(kGpu, ActivationMode::automatic, true))->reason,
              HasSubstr("no matrix of this model is rotated"));
}

// If the other device refuses as well, the first reason is reported.
TEST(Support, TheCpuIsNoWayOutWhereItRefusesToo) {
  const Format& coded = get_format("tc3:hq");
  Unread source("tiny", {&coded, &coded, &coded});
  LoadOptions options = options_of(kGpu, ActivationMode::f16);
  options.may_use_cpu = true;
  EXPECT_THAT(refusal(source, options)->reason, HasSubstr("no GPU kernels for tc3:hq"));
}

// Prepared inputs are what their matrices ask for.
TEST(Support, RotatedInputsHaveGroupsOf128) {
  const LoadOptions plain = options_of(kCpu);
  const auto shape = [&](const Format& format, RotationKind kind, bool folded,
                         const LoadOptions& options) {
    return prepared_shape(form_with(format, kind, 128), 0, 100, folded, options);
  };
  const Format &tq3 = get_format("tq3"), &q8 = get_format("q8_0");
  EXPECT_EQ(shape(tq3, RotationKind::hadamard, false, plain), (BufferShape{128, 1, 128}));
  EXPECT_EQ(shape(tq3, RotationKind::none, false, plain), (BufferShape{128, 1, 32}));
  EXPECT_EQ(shape(tq3, RotationKind::none, true, plain), (BufferShape{128, 1, 128}));
  EXPECT_EQ(shape(q8, RotationKind::none, true, plain), (BufferShape{128, 2, 32}));
  EXPECT_EQ(shape(tq3, RotationKind::hadamard, false, options_of(kCpu, ActivationMode::f32)),
            (BufferShape{128, 0, 0}));
  const LoadOptions weights = options_of(kGpu, ActivationMode::automatic, true);
  EXPECT_EQ(shape(tq3, RotationKind::hadamard, false, weights), (BufferShape{128, 0, 0}));
  EXPECT_EQ(shape(q8, RotationKind::none, false, weights), (BufferShape{128, 2, 32}));
}

// Expert 2 of the first layer has another format than the others.
class MixedExperts : public SyntheticSource {
 public:
  using SyntheticSource::SyntheticSource;
  std::string mixed;
  StoredForm form_of(const std::string& name) const override {
    StoredForm form = SyntheticSource::form_of(name);
    if (name == mixed) form.format = &get_format("tq4");
    return form;
  }
};

std::string reason_against(const WeightSource& source, const LoadOptions& options) {
  try {
    const ModelConfig config = parse_config(source.config_json(), "test");
    refuse_unsupported(source, config, make_steps(config, source, options), options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    return e.what();
  }
  return "";
}

TEST(Support, AGpuWantsTheExpertsOfALayerInOneFormat) {
  const Format& tq3 = get_format("tq3");
  MixedExperts source("tiny-moe", {&tq3, &tq3, &tq3});
  EXPECT_THAT(reason_against(source, options_of(kGpu)), IsEmpty());
  const ModelConfig config = parse_config(source.config_json(), "test");
  const LayerDesc& layer = config.layers[0];
  for (const int matrix : {layer.experts.gate(2), layer.experts.down(2)}) {
    source.mixed = layer.matrix(matrix).weight;
    EXPECT_THAT(reason_against(source, options_of(kCpu)), IsEmpty());
    const std::string reason = reason_against(source, options_of(kGpu));
    EXPECT_THAT(reason, HasSubstr("tensor " + source.mixed));
    EXPECT_THAT(reason, HasSubstr("in several formats (tq4 and tq3)"));
  }
}

TEST(Support, LatentsAreOneVectorForKeysAndValues) {
  const Format& tq3 = get_format("tq3");
  const SyntheticSource source("tiny-latent", {&tq3, &tq3, &tq3});
  LoadOptions options = options_of(kCpu);
  options.cache.keys = &get_cache_type("tq3_0");
  EXPECT_THAT(reason_against(source, options), HasSubstr("cache types 'tq3_0' and 'f16'"));
  EXPECT_THAT(reason_against(source, options), HasSubstr("choose one type for both"));
  options.cache.values = options.cache.keys;
  EXPECT_THAT(reason_against(source, options), IsEmpty());
  options.device = options_of(kGpu).device;
  EXPECT_THAT(reason_against(source, options), HasSubstr("latents are coded only on the CPU"));
}

TEST(Support, AGpuNamesTheCacheTypesThatItDoesNotHave) {
  const Format& tq3 = get_format("tq3");
  const SyntheticSource source("tiny", {&tq3, &tq3, &tq3});
  for (const char* name : {"tq3_0", "tq3_0:seed"}) {
    LoadOptions options = options_of(kCpu);
    options.cache.keys = options.cache.values = &get_cache_type(name);
    EXPECT_THAT(reason_against(source, options), IsEmpty());
    options.device = options_of(kGpu).device;
    const std::string reason = reason_against(source, options);
    EXPECT_EQ(reason.empty(), !options.cache.keys->largest_scale) << reason;
    if (!reason.empty()) {
      EXPECT_THAT(reason, HasSubstr("cache types 'tq3_0:seed' and"));
    }
    EXPECT_EQ(why_not_on_gpus(options.cache, 64).empty(), reason.empty());
    EXPECT_FALSE(why_not_on_gpus(options.cache, 96).empty());
  }
}

TEST(Support, AGpuNamesTheOptionsThatExpertsDoNotHave) {
  const Format& tq3 = get_format("tq3");
  const SyntheticSource source("tiny-moe", {&tq3, &tq3, &tq3});
  EXPECT_THAT(reason_against(source, options_of(kGpu, ActivationMode::f16)),
              HasSubstr("f16 activations"));
  EXPECT_THAT(reason_against(source, options_of(kGpu, ActivationMode::automatic, true)),
              HasSubstr("--rotate weights"));
  EXPECT_THAT(reason_against(source, options_of(kGpu, ActivationMode::i8x2)), IsEmpty());
}

TEST(Support, AGpuNamesWhatItHasNoRoomFor) {
  const Format& tq3 = get_format("tq3");
  const SyntheticSource source("tiny-moe", {&tq3, &tq3, &tq3});
  ModelConfig config = parse_config(source.config_json(), "test");
  const auto set_experts = [&](int64_t count) {
    LayerDesc& layer = config.layers[0];
    const auto first = static_cast<size_t>(layer.experts.first);
    const auto of_all = static_cast<size_t>(3 * count);
    const std::vector<MatrixDesc> behind(
        layer.matrices.begin() + layer.experts.down(layer.experts.count - 1) + 1,
        layer.matrices.end());
    ASSERT_TRUE(behind.empty());
    layer.matrices.resize(first + of_all, layer.matrices[first]);
    for (size_t i = 0; i < of_all; ++i) {
      layer.matrices[first + i] = layer.matrices[first + i % 3];
      layer.matrices[first + i].expert = static_cast<int>(i / 3);
    }
    layer.experts.count = count;
  };
  set_experts(kMostGpuExperts + 1);
  EXPECT_THAT(why_not(config, kGpu), HasSubstr("more than 800 experts"));
  EXPECT_THAT(why_not(config, kCpu), IsEmpty());
  set_experts(kMostGpuExperts);
  EXPECT_THAT(why_not(config, kGpu), IsEmpty());
  config.layers[0].experts.gated = false;
  EXPECT_THAT(why_not(config, kGpu), HasSubstr("experts without gates"));
  EXPECT_THAT(why_not(config, kCpu), IsEmpty());
  const SyntheticSource recurrent("tiny-delta", {&tq3, &tq3, &tq3});
  config = parse_config(recurrent.config_json(), "test");
  EXPECT_THAT(why_not(config, kGpu), IsEmpty());
  for (LayerDesc& layer : config.layers)
    if (layer.delta_net.present()) layer.delta_net.key_dim = kMostGpuDeltaDim + 16;
  EXPECT_THAT(why_not(config, kGpu), HasSubstr("more than 256 values"));
  EXPECT_THAT(why_not(config, kCpu), IsEmpty());
}

TEST(Support, GpusNormTurnedHeadsOneByOneOnly) {
  const Format& tq3 = get_format("tq3");
  const SyntheticSource source("tiny", {&tq3, &tq3, &tq3});
  ModelConfig config = parse_config(source.config_json(), "test");
  AttentionDesc& attention = config.layers[0].attention;
  attention.norms_turned = true;
  EXPECT_THAT(why_not(config, kGpu), IsEmpty());
  attention.unit_eps = 1e-6f;
  EXPECT_THAT(why_not(config, kGpu), HasSubstr("after their rotation"));
  EXPECT_THAT(why_not(config, kCpu), IsEmpty());
}

// No file describes such a layer, but a config that a program puts together may.
TEST(Support, ALayerIsAskedWhatItComputesAndNotForMatricesThatItLacks) {
  const Format& tq3 = get_format("tq3");
  const SyntheticSource source("tiny-moe", {&tq3, &tq3, &tq3});
  ModelConfig config = parse_config(source.config_json(), "test");
  config.layers[0].experts.count = int64_t{1} << 40;
  EXPECT_THAT(why_not(config, kCpu), IsEmpty());
  EXPECT_THAT(why_not(config, kGpu), HasSubstr("more than 800 experts"));
  config.layers[0].experts.count = kMostGpuExperts;
  EXPECT_THAT(why_not(config, kCpu), IsEmpty());
  EXPECT_THAT(why_not(config, kGpu), IsEmpty());
}

TEST(Support, AGpuRefusesKindsOfAttentionInOneLine) {
  const auto reason_of = [](const char* shape, const auto& change) {
    const Format& tq3 = get_format("tq3");
    const SyntheticSource source(shape, {&tq3, &tq3, &tq3});
    ModelConfig config = parse_config(source.config_json(), "test");
    change(config, config.layers[1].attention);
    EXPECT_THAT(why_not(config, kCpu), IsEmpty());
    return why_not(config, kGpu);
  };
  const auto reason = [&](const auto& change) {
    return reason_of("tiny", [&](ModelConfig&, AttentionDesc& a) { change(a); });
  };
  EXPECT_THAT(reason([](AttentionDesc&) {}), IsEmpty());
  EXPECT_THAT(reason_of("tiny-latent", [](ModelConfig&, AttentionDesc&) {}), IsEmpty());
  EXPECT_THAT(reason([](AttentionDesc& a) { a.chunk = 8; }), IsEmpty());
  EXPECT_THAT(reason([](AttentionDesc& a) { a.unit_eps = 1e-5F; }), IsEmpty());
  EXPECT_THAT(reason([](AttentionDesc& a) { a.growth = 1; }), IsEmpty());
  EXPECT_THAT(reason([](AttentionDesc& a) { a.head_dim = 512; }), IsEmpty());
  EXPECT_THAT(reason([](AttentionDesc& a) { a.head_dim = 520; }),
              HasSubstr("heads of more than 512 values work only on the CPU"));
  EXPECT_THAT(reason([](AttentionDesc& a) { a.head_dim = 100; }),
              HasSubstr("heads of 100 values, which are no multiple of 8, work only on the CPU"));
  EXPECT_THAT(reason([](AttentionDesc& a) {
                a.unit_eps = 1e-5F;
                a.q_norm = {"norm", a.head_dim, 1e-5F, 0};
                a.k_norm = {"norm", a.head_dim, 1e-5F, 0};
              }),
              IsEmpty())
      << "a norm in front of the one that gives heads unit length";
}

// Factors of queries are a table for each kind, and a rope's magnitude is a factor of what is
// normed: neither is a reason to refuse a model. What a rope does to a part of a head only is.
TEST(Support, AGpuRunsQueriesThatGrowInAnyWay) {
  const Format& tq3 = get_format("tq3");
  const SyntheticSource source("tiny", {&tq3, &tq3, &tq3});
  ModelConfig config = parse_config(source.config_json(), "test");
  ASSERT_GE(config.layers.size(), 2u);
  config.ropes[0].query_beta = 0.1F;
  config.ropes[0].original_max_positions = 64;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].attention.growth = i == 0 ? 0.1F : 0.2F;
    config.layers[i].attention.growth_step = 8;
  }
  EXPECT_THAT(why_not(config, kGpu), IsEmpty());
  const ModelSteps steps = make_steps(config);
  ASSERT_EQ(steps.query_factors.size(), 2u);
  EXPECT_EQ(steps.query_factors[0].rope, 0);
  EXPECT_NE(steps.query_factors[0], steps.query_factors[1]);
}

}  // namespace
}  // namespace walsh
