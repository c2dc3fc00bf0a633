// Files whose tensors are encoded concurrently, with devices that search trellis tiles, equal those
// encoded one tensor after the other.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "codec/trellis/tile_device.h"
#include "codec/trellis/trellis.h"
#include "codec/trellis/trellis_search.h"
#include "quantize/tiny_pipeline.h"
#include "walsh/error.h"
#include "walsh/stop.h"

namespace walsh {
namespace {

// Records what a test's devices have seen.
struct Sight {
  std::atomic<int> tensors = 0, at_work = 0, most_at_work = 0, released = 0;
  std::atomic<bool> wait_for_another = false;
};

// Searches on the CPU.
class CpuTiles : public detail::TileDevice {
 public:
  explicit CpuTiles(Sight& sight) : sight_(sight) {}

  bool searches(const Format&) const override { return true; }
  bool shared() const override { return true; }
  void prepare(const TrellisCode&, const detail::TrellisTable& table, int seam_weights) override {
    ++sight_.tensors;
    sight_.most_at_work = std::max<int>(sight_.most_at_work, ++sight_.at_work);
    at_work_ = true;
    search_ = std::make_unique<detail::TileSearch>(table, seam_weights);
    meet_another();
    if (full) throw Error(ErrorCode::limit, "GPU memory", "none is left");
    if (stop) *stop = true;
  }
  int64_t batch_tiles() const override { return 4; }
  float* targets(int slot, int64_t tiles) override {
    targets_[slot].resize(static_cast<size_t>(tiles * kTileWeights));
    states_[slot].resize(targets_[slot].size());
    return targets_[slot].data();
  }
  void start(int slot, int64_t tiles) override {
    search_->encode(targets_[slot].data(), static_cast<int>(tiles), states_[slot].data());
  }
  const uint16_t* finish(int slot) override { return states_[slot].data(); }
  int64_t fed_back_rows(int64_t) const override { return kTileRows; }
  float* rows(int64_t, int64_t) override { return nullptr; }
  const uint16_t* feed_back(const detail::FedBackRows&) override { return nullptr; }
  void release() override {
    ++sight_.released;
    if (std::exchange(at_work_, false)) --sight_.at_work;
  }

  bool full = false;
  std::atomic<bool>* stop = nullptr;

 private:
  // Waits for a while only, so that a test that fails ends.
  void meet_another() {
    for (int i = 0; i < 2000 && sight_.wait_for_another && sight_.most_at_work < 2; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  Sight& sight_;
  bool at_work_ = false;
  std::unique_ptr<detail::TileSearch> search_;
  std::vector<float> targets_[2];
  std::vector<uint16_t> states_[2];
};

class BegunTensors : public TinyPipeline {
 protected:
  std::unique_ptr<Compressor> beside(const Recipe& recipe) {
    auto result = compressor(recipe);
    result->search_on({&first_, &second_});
    return result;
  }
  static Recipe trellis() {
    Recipe recipe = recipe_of("tc2:h:L14");
    recipe.head_type = recipe.type;
    return recipe;
  }
  std::string error_of(Compressor& source, ErrorCode code) {
    try {
      quantize_to_file(source, out_, {});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code);
      return e.what();
    }
    return "none";
  }

  const std::string out_ = tiny_.file("out.gguf");
  Sight sight_;
  CpuTiles first_{sight_}, second_{sight_};
};

TEST_F(BegunTensors, GiveTheFileOfOneAfterTheOther) {
  const std::string expected = quantize(trellis());
  sight_.wait_for_another = true;
  std::vector<std::string> order;
  quantize_to_file(*beside(trellis()), out_,
                   [&](const QuantizeProgress& p) { order.push_back(p.tensor->name); });
  EXPECT_TRUE(slurp(out_) == expected);
  EXPECT_EQ(sight_.most_at_work, 2);
  EXPECT_EQ(sight_.tensors, 7);
  std::vector<std::string> in_order;
  const auto source = compressor(trellis());
  for (const TensorPlan& plan : source->tensors())
    in_order.push_back(plan.name);
  EXPECT_EQ(order, in_order);
}

// Scalar matrices stand between those of trellis codes.
TEST_F(BegunTensors, StandBesideOthers) {
  Recipe recipe = trellis();
  recipe.rules.push_back({"k", std::nullopt, &get_format("tq3")});
  recipe.rules.push_back({"gate", std::nullopt, &get_format("f16")});
  const std::string expected = quantize(recipe);
  quantize_to_file(*beside(recipe), out_, {});
  EXPECT_TRUE(slurp(out_) == expected);
  EXPECT_EQ(sight_.tensors, 5);
}

TEST_F(BegunTensors, FollowEachOtherWhereMemoryIsShort) {
  const std::string expected = quantize(trellis());
  second_.full = true;
  quantize_to_file(*beside(trellis()), out_, {});
  EXPECT_TRUE(slurp(out_) == expected);
  EXPECT_EQ(sight_.released, sight_.tensors);
  EXPECT_EQ(sight_.at_work, 0);
}

// The first error is reported, as without devices, and nothing is left behind.
TEST_F(BegunTensors, TellTheErrorOfTheFirst) {
  for (const char* name : {"k", "v"})
    tiny_.values(name)[100] = std::numeric_limits<float>::quiet_NaN();
  tiny_.save();
  const std::string expected = error_of(*compressor(trellis()), ErrorCode::bad_input);
  EXPECT_NE(expected.find("tensor k"), std::string::npos) << expected;
  const auto source = beside(trellis());
  EXPECT_EQ(error_of(*source, ErrorCode::bad_input), expected);
  EXPECT_FALSE(std::filesystem::exists(out_));
  EXPECT_EQ(sight_.at_work, 0);
}

TEST_F(BegunTensors, EndWhenTheyShall) {
  const std::string expected = quantize(trellis());
  std::filesystem::remove(out_);
  std::atomic<bool> flag = false;
  {
    second_.stop = &flag;
    const StopScope scope(flag);
    const auto source = beside(trellis());
    error_of(*source, ErrorCode::interrupted);
    EXPECT_EQ(sight_.at_work, 0);
    EXPECT_FALSE(std::filesystem::exists(out_));
  }
  second_.stop = nullptr;
  quantize_to_file(*beside(trellis()), out_, {});
  EXPECT_TRUE(slurp(out_) == expected);
}

// The next run reuses what was written, but not what was only begun.
TEST_F(BegunTensors, AreTakenUpByTheNextRun) {
  const std::string expected = quantize(trellis());
  std::filesystem::remove(out_);
  EXPECT_THROW(quantize_to_file(*beside(trellis()), out_,
                                [](const QuantizeProgress& p) {
                                  if (p.tensor->name == "v")
                                    throw Error(ErrorCode::interrupted, "", "enough");
                                }),
               Error);
  std::vector<std::string> resumed;
  quantize_to_file(*beside(trellis()), out_, [&](const QuantizeProgress& p) {
    if (p.resumed) resumed.push_back(p.tensor->name);
  });
  EXPECT_EQ(resumed, (std::vector<std::string>{"q", "k", "v"}));
  EXPECT_TRUE(slurp(out_) == expected);
}

}  // namespace
}  // namespace walsh
