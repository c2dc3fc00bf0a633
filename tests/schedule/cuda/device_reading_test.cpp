// Tests texts that are read on a GPU: they have the states that the CPU computes, in one launch per
// step or several, among texts that the device chooses tokens for.
#include <gmock/gmock.h>

#include <cmath>

#include "../texts.h"
#include "model/cuda/gpu_models.h"
#include "model/split.h"

namespace walsh {
namespace {

using test::finish;
using test::Recorder;

class GpuReadingTest : public test::GpuTest {
 protected:
  class Reader : public Recorder {
   public:
    void read(std::span<const float> what) override { values.assign(what.begin(), what.end()); }
    std::vector<float> values;
  };

  static TextRequest reading(int64_t length, Reading what) {
    TextRequest request;
    request.prompt = test::random_tokens(length, 500, static_cast<uint64_t>(length));
    request.reading = what;
    return request;
  }

  // What is read of texts of these lengths, while another text is generated.
  static std::vector<std::vector<float>> read(const Model& model, Reading what,
                                              const std::vector<int64_t>& lengths) {
    SchedulerOptions options;
    options.positions = 256;
    options.running = 6;
    options.step_tokens = 64;
    Scheduler scheduler(model, options);
    TextRequest written;
    written.prompt = test::random_tokens(20, 500, 1);
    written.max_tokens = 40;
    written.sampler.temperature = 0;
    const auto other = std::make_shared<Recorder>();
    scheduler.add(written, other);
    std::vector<std::shared_ptr<Reader>> readers;
    for (const int64_t length : lengths) {
      readers.push_back(std::make_shared<Reader>());
      scheduler.add(reading(length, what), readers.back());
    }
    finish(scheduler);
    EXPECT_EQ(other->tokens.size(), 40u);
    std::vector<std::vector<float>> values;
    for (const auto& reader : readers) {
      EXPECT_TRUE(reader->end);
      values.push_back(reader->values);
    }
    return values;
  }

  static double cosine(const std::vector<float>& a, const std::vector<float>& b) {
    double dot = 0, x = 0, y = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      dot += double{a[i]} * double{b[i]};
      x += double{a[i]} * double{a[i]};
      y += double{b[i]} * double{b[i]};
    }
    return dot / std::sqrt(x * y);
  }

  void expect_alike(const Model& device, const Model& host) {
    const std::vector<int64_t> lengths = {1, 2, 9, 33, 64, 65, 150, 5};
    for (const Reading what : {Reading::last, Reading::mean, Reading::cls, Reading::logits}) {
      const auto found = read(device, what, lengths), expected = read(host, what, lengths);
      for (size_t i = 0; i < lengths.size(); ++i) {
        ASSERT_EQ(found[i].size(), expected[i].size());
        EXPECT_GT(cosine(found[i], expected[i]), 0.999)
            << static_cast<int>(what) << " of " << lengths[i];
      }
    }
  }
};

TEST_F(GpuReadingTest, StatesAreThoseOfTheCpu) {
  for (const char* type : {"f16", "tq4"}) {
    SyntheticSource source = test::synthetic(type, "f16");
    expect_alike(load(source, gpu_), load(source, {}));
  }
}

TEST_F(GpuReadingTest, StatesOfAModelOnBothDevicesAreThoseOfTheCpu) {
  SyntheticSource source = test::synthetic("tq4", "f16");
  LoadOptions options;
  options.pool = &pool_;
  options.device = gpu_;
  options.gpu_layers = 1;
  const Model both =
      Model::load(source, parse_config(source.config_json(), source.path()), options);
  ASSERT_FALSE(both.parts.empty());
  expect_alike(both, load(source, {}));
}

}  // namespace
}  // namespace walsh
