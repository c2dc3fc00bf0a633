#include "eval/meters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace walsh {
namespace {

TEST(PerplexityMeter, MatchesAHandComputedCase) {
  PerplexityMeter meter;
  for (const double nll : {1.0, 2.0, 3.0, 6.0})
    meter.add(nll);
  // The mean is 3, the squared deviations 4 + 1 + 0 + 9 = 14, the variance 14/3, the error
  // sqrt(14/12).
  EXPECT_EQ(meter.count(), 4);
  EXPECT_NEAR(meter.mean_nll().value, 3.0, 1e-15);
  EXPECT_NEAR(meter.mean_nll().error, std::sqrt(14.0 / 12.0), 1e-15);
  EXPECT_NEAR(meter.perplexity().value, std::exp(3.0), 1e-12);
  EXPECT_NEAR(meter.perplexity().error, std::exp(3.0) * std::sqrt(14.0 / 12.0), 1e-12);
}

TEST(PerplexityMeter, OneTokenHasNoErrorEstimate) {
  PerplexityMeter meter;
  EXPECT_EQ(meter.mean_nll().value, 0);
  meter.add(0.5);
  EXPECT_EQ(meter.mean_nll().error, 0);
  EXPECT_NEAR(meter.perplexity().value, std::exp(0.5), 1e-15);
}

TEST(MeanMeter, KeepsSmallVariancesOfLargeValues) {
  MeanMeter meter;
  for (int i = 0; i < 1000; ++i)
    meter.add(1e9 + (i % 2));
  EXPECT_NEAR(meter.variance(), 0.25 * 1000 / 999, 1e-6);
}

TokenScore score(double reference, double model, double kld, double dp, bool same) {
  return {reference, model, kld, dp, same};
}

TEST(DivergenceMeter, MatchesAHandComputedCase) {
  DivergenceMeter meter;
  meter.add(score(1, 2, 0.25, 0.3, true));
  meter.add(score(3, 3, 0.05, -0.4, false));
  meter.add(score(2, 4, 0.60, 0.0, true));
  EXPECT_EQ(meter.count(), 3);
  EXPECT_NEAR(meter.perplexity().value, std::exp(3.0), 1e-12);
  EXPECT_NEAR(meter.reference_perplexity().value, std::exp(2.0), 1e-12);
  // The differences are 1, 0, 2: mean 1, variance 1, error 1/sqrt(3).
  EXPECT_NEAR(meter.ln_ratio().value, 1, 1e-12);
  EXPECT_NEAR(meter.ln_ratio().error, 1 / std::sqrt(3.0), 1e-12);
  EXPECT_NEAR(meter.kld().value, 0.3, 1e-12);
  EXPECT_NEAR(meter.rms_dp().value, std::sqrt(0.25 / 3), 1e-12);
  EXPECT_NEAR(meter.same_top().value, 2.0 / 3, 1e-12);
  // The variances are 1 and 1, the covariance of (2,3,4) and (1,3,2) is 1/2.
  EXPECT_NEAR(meter.correlation(), 0.5, 1e-12);
  EXPECT_EQ(meter.kld_values().percentiles({0, 50, 100}), (std::vector<double>{0.05, 0.25, 0.60}));
  EXPECT_EQ(meter.dp_values().percentiles({0, 50, 100}), (std::vector<double>{-0.4, 0.0, 0.3}));
}

TEST(DivergenceMeter, OfIdenticalModelsIsZeroEverywhere) {
  DivergenceMeter meter;
  for (const double nll : {0.5, 1.5, 4.0})
    meter.add(score(nll, nll, 0, 0, true));
  EXPECT_EQ(meter.ln_ratio().value, 0);
  EXPECT_EQ(meter.ln_ratio().error, 0);
  EXPECT_EQ(meter.kld().value, 0);
  EXPECT_EQ(meter.rms_dp().value, 0);
  EXPECT_EQ(meter.rms_dp().error, 0);
  EXPECT_EQ(meter.same_top().value, 1);
  EXPECT_NEAR(meter.correlation(), 1, 1e-12);
}

}  // namespace
}  // namespace walsh
