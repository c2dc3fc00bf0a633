// Tests the front of a block on a GPU.
#include "front_data.h"

#include "base/cuda/graph.h"

namespace walsh::cuda {
namespace {

TEST(GpuFront, MakesInputsAsPreparationDoes) {
  WALSH_NEED_GPU();
  for (const auto& cases : {front_cases(), large_front_cases()})
    for (const FrontCase& c : cases)
      expect_front_inputs(c);
}

TEST(GpuFront, MultipliesNormedRows) {
  WALSH_NEED_GPU();
  for (const auto& cases : {front_cases(), large_front_cases()})
    for (const FrontCase& c : cases)
      expect_front_products(c);
}

TEST(GpuFront, ChoosesExpertsAsALaunchOfItsOwn) {
  WALSH_NEED_GPU();
  for (const auto& cases : {front_cases(), large_front_cases()})
    for (const FrontCase& c : cases)
      expect_front_choices(c);
}

// Launch follows launch, without a wait between them: the counter of one is that of the next.
TEST(GpuFront, FollowsItselfInAGraph) {
  WALSH_NEED_GPU();
  const FrontCase c{3, 1024, 64, true};
  const Front front(c, 0);
  const FrontChoices choices(c, front.y[0], 1);
  const FrontRoute route_in_front{choices.call, choices.plan, choices.slots(),
                                  choices.arrived.as<int32_t>()};
  FrontCall call = front.call();
  call.route = &route_in_front;
  const OwnedStream stream;
  const auto several = [&] {
    for (int i = 0; i < 20; ++i)
      cuda::front(call, stream.get());
  };
  several();
  stream.synchronize();
  const auto expected = choices.all();
  const Graph graph = Graph::record(stream.get(), several);
  choices.forget(stream.get());
  graph.launch(stream.get());
  stream.synchronize();
  EXPECT_EQ(choices.all(), expected);
}

}  // namespace
}  // namespace walsh::cuda
