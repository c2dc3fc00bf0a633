#include "kernels/cuda/persistent/block_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "base/random.h"

namespace walsh::cuda {
namespace {

using Work = PhaseOrder::Work;

bool product(PhaseOrder& order, ExchangeArray& in, ExchangeArray& out) {
  ExchangeArray* const from[] = {&in};
  ExchangeArray* const to[] = {&out};
  return order.add(Work::matmul, from, to);
}

bool part(PhaseOrder& order, ExchangeArray& in, ExchangeArray& out) {
  ExchangeArray* const from[] = {&in};
  ExchangeArray* const to[] = {&out};
  return order.add(Work::part, from, to);
}

TEST(PhaseOrder, LayersFollowEachOtherWithoutBarriers) {
  for (const bool shared : {false, true}) {
    PhaseOrder order;
    ExchangeArray x, normed, qkv, attended, gate_up, hidden;
    for (int layer = 0; layer < 5; ++layer) {
      EXPECT_TRUE(!shared || part(order, x, normed));
      EXPECT_TRUE(product(order, shared ? normed : x, qkv));
      EXPECT_TRUE(part(order, qkv, attended));
      EXPECT_TRUE(product(order, attended, x));
      EXPECT_TRUE(!shared || part(order, x, normed));
      EXPECT_TRUE(product(order, shared ? normed : x, gate_up));
      EXPECT_TRUE(part(order, gate_up, hidden));
      EXPECT_TRUE(product(order, hidden, x));
    }
    EXPECT_EQ(x.writes, 10);
    EXPECT_EQ(qkv.writes, 5);
  }
}

// Adds a product of two inputs, the second of which every block reads wholly.
bool product_of_choice(PhaseOrder& order, ExchangeArray& in, ExchangeArray& logits,
                       ExchangeArray& out) {
  ExchangeArray* const from[] = {&in, &logits};
  ExchangeArray* const to[] = {&out};
  return order.add(Work::matmul, from, to);
}

// The phases are router, gate and up, and down of the chosen experts; both may have inputs in
// phases of their own.
TEST(PhaseOrder, LayersWithExpertsFollowEachOtherWithoutBarriers) {
  for (const bool shared : {false, true}) {
    for (const bool shared_down : {false, true}) {
      PhaseOrder order;
      ExchangeArray x, normed, qkv, attended, logits, gate_up, hidden;
      for (int layer = 0; layer < 5; ++layer) {
        EXPECT_TRUE(!shared || part(order, x, normed));
        EXPECT_TRUE(product(order, shared ? normed : x, qkv));
        EXPECT_TRUE(part(order, qkv, attended));
        EXPECT_TRUE(product(order, attended, x));
        EXPECT_TRUE(part(order, x, logits));
        EXPECT_TRUE(!shared || part(order, x, normed));
        EXPECT_TRUE(product_of_choice(order, shared ? normed : x, logits, gate_up));
        EXPECT_TRUE(!shared_down || part(order, gate_up, hidden));
        EXPECT_TRUE(product(order, shared_down ? hidden : gate_up, x));
      }
      EXPECT_EQ(x.writes, 10);
      EXPECT_EQ(logits.writes, 5);
    }
  }
  // Nothing says that all blocks have chosen: their choice is read beside what they wait for.
  PhaseOrder order;
  ExchangeArray x, logits, gate_up;
  EXPECT_TRUE(part(order, x, logits));
  EXPECT_TRUE(product_of_choice(order, x, logits, gate_up));
  EXPECT_FALSE(part(order, x, logits));
}

// The step of a delta net reads both results of the preceding product, and its input once more; the
// step's output and the squares of its heads are read together.
TEST(PhaseOrder, LayersOfDeltaNetsFollowEachOtherWithoutBarriers) {
  PhaseOrder order;
  ExchangeArray x, channels, gates, mixed, squares, gate_up;
  ExchangeArray *const stream[] = {&x}, *const firsts[] = {&channels, &gates};
  ExchangeArray *const read[] = {&channels, &gates, &x}, *const given[] = {&mixed, &squares};
  for (int layer = 0; layer < 5; ++layer) {
    EXPECT_TRUE(order.add(Work::matmul, stream, firsts));
    EXPECT_TRUE(order.add(Work::part, read, given));
    EXPECT_TRUE(order.add(Work::matmul, given, stream));
    EXPECT_TRUE(product(order, x, gate_up));
    EXPECT_TRUE(product(order, gate_up, x));
  }
  EXPECT_EQ(x.writes, 10);
  EXPECT_EQ(squares.writes, 5);
  // Blocks with gates may not have come this far if no block reads these.
  PhaseOrder without;
  ExchangeArray y, some, others, out;
  ExchangeArray *const from[] = {&y}, *const both[] = {&some, &others}, *const one[] = {&some, &y};
  ExchangeArray* const to[] = {&out};
  EXPECT_TRUE(without.add(Work::matmul, from, both));
  EXPECT_TRUE(without.add(Work::part, one, to));
  EXPECT_FALSE(without.add(Work::matmul, to, from));
}

TEST(PhaseOrder, ResultsThatOthersMayStillReadAreNotOverwritten) {
  PhaseOrder order;
  ExchangeArray x, a, b;
  EXPECT_FALSE(product(order, x, x));
  PhaseOrder other;
  EXPECT_TRUE(product(other, x, a));
  EXPECT_TRUE(product(other, a, b));
  EXPECT_FALSE(product(other, x, a));  // nothing says that all blocks have made b
  PhaseOrder half;                     // some blocks may have no part of what is read
  ExchangeArray in, first, second, result;
  ExchangeArray* const from[] = {&in};
  ExchangeArray* const both[] = {&first, &second};
  EXPECT_TRUE(half.add(Work::matmul, from, both));
  EXPECT_TRUE(product(half, first, result));
  EXPECT_FALSE(product(half, first, in));
  ExchangeArray* const to[] = {&in};
  EXPECT_TRUE(half.add(Work::matmul, both, to));
  PhaseOrder chain;
  ExchangeArray start, y, z;
  EXPECT_TRUE(product(chain, start, y));
  EXPECT_TRUE(product(chain, y, z));
  EXPECT_TRUE(product(chain, z, y));
}

// Tests programs of random phases, and blocks that go through them at random speeds. Two and two of
// them are pairs, which make inputs together (persistent/exchange.cuh).
constexpr int kBlocks = 4, kArrays = 5, kPhases = 14;
constexpr int kParts[kArrays] = {4, 4, 4, 1, 3};  // of an array: the blocks that write it

struct Phase {
  Work work;
  int in, out;
  int read, written;  // versions
  int turn = -1;      // a product whose input pairs make: its number among those
  int also = -1;      // another array, which every block with results reads wholly, -1: none
  int also_read = 0;
};

// Returns whether pairs make the input of a product. Parts are units of what products read; an
// input of one leaves nothing to the second of a pair.
bool for_pairs(const Phase& phase) {
  return phase.work == Work::matmul && kParts[phase.in] > 1;
}

std::vector<Phase> random_program(Random& random) {
  PhaseOrder order;
  std::array<ExchangeArray, kArrays> arrays;
  std::vector<Phase> program;
  int turns = 0;
  for (int tries = 0; tries < 60 && program.size() < kPhases; ++tries) {
    const int in = static_cast<int>(random.below(kArrays));
    const int out = static_cast<int>(random.below(kArrays));
    Phase phase{kParts[out] == kBlocks ? Work::matmul : Work::part, in, out, 0, 0};
    const auto index = static_cast<size_t>(in);
    phase.read = arrays[index].writes;
    const auto other = random.below(3 * kArrays);
    if (other < kArrays && other != index) {
      phase.also = static_cast<int>(other);
      phase.also_read = arrays[other].writes;
    }
    const std::array<ExchangeArray*, 2> from{&arrays[index],
                                             phase.also < 0 ? nullptr : &arrays[other]};
    ExchangeArray* const to = &arrays[static_cast<size_t>(out)];
    if (!order.add(phase.work, {from.data(), phase.also < 0 ? 1u : 2u}, {&to, 1})) continue;
    phase.written = to->writes;
    if (for_pairs(phase) && random.below(4) != 0) phase.turn = turns++;
    program.push_back(phase);
  }
  return program;
}

// Returns which parts of its input a block reads, as a mask.
uint32_t needed(const Phase& phase, int block) {
  const int parts = kParts[phase.out], inputs = kParts[phase.in];
  const uint32_t all = (1u << inputs) - 1;
  if (phase.turn >= 0) return all & (block % 2 == 0 ? 0x5555u : 0xaaaau);
  if (phase.work == Work::matmul) return all;
  if (block >= parts) return 0;
  uint32_t mask = 1u << block % inputs;
  for (int p = block; p < inputs; p += parts)
    mask |= 1u << p;
  return mask;
}

// Adds the phases of a layer, over and over.
class Layers {
 public:
  // Reads `in`, of which a part may be read by some blocks only, and `also`, if it is not -1.
  void add(int in, int out, int also = -1) {
    Phase phase{kParts[out] == kBlocks ? Work::matmul : Work::part, in, out, array(in)->writes, 0};
    phase.also = also;
    if (also >= 0) phase.also_read = array(also)->writes;
    const std::array<ExchangeArray*, 2> from{array(in), also < 0 ? nullptr : array(also)};
    ExchangeArray* const to = array(out);
    EXPECT_TRUE(order_.add(phase.work, {from.data(), also < 0 ? 1u : 2u}, {&to, 1}));
    phase.written = to->writes;
    if (for_pairs(phase)) phase.turn = turns_++;
    program.push_back(phase);
  }

  std::vector<Phase> program;

 private:
  ExchangeArray* array(int i) { return &arrays_[static_cast<size_t>(i)]; }

  PhaseOrder order_;
  std::array<ExchangeArray, kArrays> arrays_;
  int turns_ = 0;
};

// Returns those of a model with experts, of which the router writes an array that only some blocks
// have parts of.
std::vector<Phase> expert_program(bool shared) {
  constexpr int kStream = 0, kMixed = 1, kGates = 2, kPackets = 3, kLogits = 4;
  Layers layers;
  for (int layer = 0; layer < 4; ++layer) {
    layers.add(kStream, kMixed);
    layers.add(kMixed, kStream);
    layers.add(kStream, kLogits);
    layers.add(kStream, kGates, kLogits);
    if (shared) layers.add(kGates, kPackets);
    layers.add(shared ? kPackets : kGates, kStream);
  }
  return layers.program;
}

// Returns those of a recurrent model: some blocks have pieces of a step, which reads the stream
// once more.
std::vector<Phase> delta_program(bool shared) {
  constexpr int kStream = 0, kChannels = 1, kGates = 2, kPackets = 3, kMixed = 4;
  Layers layers;
  for (int layer = 0; layer < 4; ++layer) {
    layers.add(kStream, kChannels);
    layers.add(kChannels, kMixed, kStream);
    if (shared) layers.add(kMixed, kPackets);
    layers.add(shared ? kPackets : kMixed, kStream);
    layers.add(kStream, kGates);
    layers.add(kGates, kStream);
  }
  return layers.program;
}

// Tracks the progress of the blocks of pairs: each has two places for inputs, used in turn.
struct Pairs {
  int sent[kBlocks] = {};  // turns whose units are in both blocks' places
  int done[kBlocks] = {};  // turns whose inputs are needed no more

  // Returns false if the other block still needs what is overwritten.
  bool send(int block, int turn) {
    sent[block] = turn + 1;
    return done[block ^ 1] > turn - 2;
  }
  bool has_all(const Phase& phase, int block) const {
    return needed(phase, block ^ 1) == 0 || sent[block ^ 1] > phase.turn;
  }
};

// Returns false if a block reads what has been overwritten, or all wait for ever.
bool runs(const std::vector<Phase>& program, Random& random) {
  int versions[kArrays][kBlocks] = {};
  size_t at[kBlocks] = {};
  uint32_t read[kBlocks] = {}, also_read[kBlocks] = {};
  Pairs pairs;
  std::array<uint64_t, kBlocks> speed;
  for (auto& s : speed)
    s = 1 + random.below(8);
  for (int idle = 0; idle < 4000; ++idle) {
    const auto block = static_cast<int>(random.below(kBlocks));
    if (at[block] == program.size() || random.below(8) >= speed[static_cast<size_t>(block)])
      continue;
    const Phase& phase = program[at[block]];
    const uint32_t wanted = needed(phase, block) & ~read[block];
    if (wanted != 0) {
      const int part = std::countr_zero(wanted);
      const int version = versions[phase.in][part];
      if (phase.read > 0 && version % 2 != phase.read % 2) continue;
      if (version != phase.read) return false;
      read[block] |= 1u << part;
    } else if (phase.turn == pairs.sent[block]) {
      if (!pairs.send(block, phase.turn)) return false;
    } else if (phase.turn >= 0 && !pairs.has_all(phase, block)) {
      continue;
    } else if (phase.also >= 0 && block < kParts[phase.out] &&
               also_read[block] + 1 < 1u << kParts[phase.also]) {
      const int part = std::countr_one(also_read[block]);
      const int version = versions[phase.also][part];
      if (phase.also_read > 0 && version % 2 != phase.also_read % 2) continue;
      if (version != phase.also_read) return false;
      also_read[block] |= 1u << part;
    } else {
      if (block < kParts[phase.out]) versions[phase.out][block] = phase.written;
      if (phase.turn >= 0) pairs.done[block] = phase.turn + 1;
      read[block] = also_read[block] = 0;
      ++at[block];
    }
    idle = 0;
  }
  return std::all_of(at, at + kBlocks, [&](size_t a) { return a == program.size(); });
}

TEST(PhaseOrder, BlocksOfAnySpeedReadWhatIsMeantForThem) {
  Random random(5);
  size_t longest = 0;
  int most_turns = 0;
  for (int i = 0; i < 400; ++i) {
    const auto program = random_program(random);
    longest = std::max(longest, program.size());
    for (const Phase& phase : program)
      most_turns = std::max(most_turns, phase.turn + 1);
    for (int run = 0; run < 8; ++run)
      ASSERT_TRUE(runs(program, random)) << "program " << i;
  }
  EXPECT_GT(longest, 8u);
  EXPECT_GT(most_turns, 5);
}

TEST(PhaseOrder, BlocksOfAnySpeedChooseTheExpertsOfTheirLayer) {
  Random random(9);
  for (const bool shared : {false, true}) {
    const auto program = expert_program(shared);
    for (int run = 0; run < 400; ++run)
      ASSERT_TRUE(runs(program, random)) << shared;
  }
}

TEST(PhaseOrder, BlocksOfAnySpeedStepTheDeltaNetOfTheirLayer) {
  Random random(10);
  for (const bool shared : {false, true}) {
    const auto program = delta_program(shared);
    for (int run = 0; run < 400; ++run)
      ASSERT_TRUE(runs(program, random)) << shared;
  }
}

int failures(const std::vector<Phase>& program) {
  Random random(6);
  int count = 0;
  for (int run = 0; run < 100; ++run)
    count += !runs(program, random);
  return count;
}

TEST(PhaseOrder, TheSimulationFindsAnOrderThatIsWrong) {
  EXPECT_GT(failures({{Work::matmul, 0, 1, 0, 1},
                      {Work::matmul, 1, 2, 1, 1},
                      {Work::matmul, 0, 1, 0, 2},
                      {Work::matmul, 0, 1, 0, 3}}),
            0);
  // The logits of the next layer are written while blocks still read those of this one.
  EXPECT_GT(failures({{Work::part, 0, 4, 0, 1},
                      {Work::matmul, 0, 1, 0, 1, -1, 4, 1},
                      {Work::part, 0, 4, 0, 2},
                      {Work::part, 0, 4, 0, 3}}),
            0);
}

// There are three products of one input. If it has one unit, the second block of a pair gives the
// first nothing to wait for.
TEST(PhaseOrder, PairsNeedTwoKTilesOfEveryInput) {
  const auto program = [](int in) {
    return std::vector<Phase>{{Work::matmul, in, 0, 0, 1, 0},
                              {Work::matmul, in, 1, 0, 1, 1},
                              {Work::matmul, in, 2, 0, 1, 2}};
  };
  EXPECT_EQ(failures(program(4)), 0);
  EXPECT_GT(failures(program(3)), 0);
}

}  // namespace
}  // namespace walsh::cuda
