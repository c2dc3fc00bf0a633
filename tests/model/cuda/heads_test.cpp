// Tests queries and keys in every order of norms, rope, unit length and factors: a GPU does some of
// it in another order than the CPU, and has to give the same results.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpu_models.h"
#include "model/session.h"

namespace walsh {
namespace {

constexpr Device kCpu{};

struct Heads {
  const char* name;
  const char* shape;   // of test models; "tiny-moe" has norms of queries and keys
  float unit_eps = 0;  // AttentionDesc
  bool magnitude = false, rope_factors = false, growth = false;
  const char* cache = "f16";
  // All factors together make queries several times as long, and with them the error that rounding
  // to fp16 makes in the logits of attention.
  double bound = 1e-3;
};

class GpuHeads : public test::GpuTest, public testing::WithParamInterface<Heads> {
 protected:
  static ModelConfig config_of(const WeightSource& source) {
    const Heads& heads = GetParam();
    ModelConfig config = parse_config(source.config_json(), source.path());
    RopeConfig& rope = config.ropes[0];
    if (heads.magnitude) {
      rope.kind = RopeKind::yarn;
      rope.factor = 4;
      rope.original_max_positions = 64;
      rope.attention_factor = 1.4;
    }
    if (heads.rope_factors) {
      rope.original_max_positions = 16;
      rope.query_beta = 0.1;
    }
    for (size_t i = 0; i < config.layers.size(); ++i) {
      AttentionDesc& a = config.layers[i].attention;
      a.unit_eps = heads.unit_eps;
      if (!heads.growth) continue;
      a.growth = i == 0 ? 0.1F : 0.3F;
      a.growth_step = 8;
    }
    return config;
  }

  Model open(WeightSource& source, const Device& device) {
    LoadOptions options;
    options.pool = &pool_;
    options.device = device;
    const CacheType& cache = get_cache_type(GetParam().cache);
    options.cache = {&cache, &cache, 32};
    return Model::load(source, config_of(source), options);
  }
};

TEST_P(GpuHeads, AreThoseOfTheCpu) {
  const Format& plain = get_format("f16");
  SyntheticSource source(GetParam().shape, {&plain, &plain, &plain});
  const Model cpu = open(source, kCpu), gpu = open(source, gpu_);
  const std::vector<int32_t> tokens = test::random_tokens(90, 500, 21);
  Session expected(cpu, {128}), session(gpu, {128});
  const test::Rows wanted = test::all_logits(expected, tokens);
  EXPECT_LT(test::divergence(wanted, test::all_logits(session, tokens)), GetParam().bound);
  session.reset();
  test::Rows steps;
  for (const int32_t token : tokens)
    steps.push_back(behind(session, {&token, 1}));
  EXPECT_LT(test::divergence(wanted, steps), GetParam().bound) << "one by one";
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, GpuHeads,
    testing::Values(Heads{"Unit", "tiny", 1e-5F}, Heads{"UnitOfAMagnitude", "tiny", 1e-5F, true},
                    Heads{"LargeEpsilon", "tiny", 0.5F, true},
                    Heads{"UnitBehindNorms", "tiny-moe", 1e-5F},
                    Heads{"UnitBehindNormsOfAMagnitude", "tiny-moe", 1e-5F, true},
                    Heads{"TwoFactors", "tiny", 0, false, true, true},
                    Heads{"FactorsByLayer", "tiny", 0, false, false, true},
                    Heads{"Latents", "tiny-latent", 0, false, false, false, "f16", 5e-3},
                    Heads{"LatentsWithFactors", "tiny-latent", 0, false, true, true, "f16", 5e-3},
                    Heads{"All", "tiny-moe", 1e-5F, true, true, true, "f16", 5e-3},
                    Heads{"AllCoded", "tiny-moe", 1e-5F, true, true, true, "q8_0", 5e-3}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace walsh
