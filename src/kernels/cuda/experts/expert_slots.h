// Groups the rows of a batch by expert. A slot is one expert of one row; slots of an expert are
// neighbours, in the order of the rows. Products take items, which are a few neighbouring slots of
// one expert. An item's place follows from the number of slots before it. So each expert computes
// its items without the others, and the shape of a launch does not depend on the choices.
#pragma once

#include <cstdint>

#include "kernels/cuda/experts/lanes.h"

namespace walsh::cuda {

// Names slots [first, first + count) of an expert. If the count is 0, there is no work.
struct alignas(16) ExpertItem {
  int32_t expert = 0, first = 0, count = 0, unused = 0;

  bool operator==(const ExpertItem&) const = default;
};

// Returns the place of an expert's first item, if its slots begin at `first`. An expert with c
// slots has at most c / per_item items, rounded up, and place(first + c, expert + 1) >=
// place(first, expert) + that.
constexpr int item_place(int first, int expert, int per_item) {
  return first / per_item + expert;
}
// Returns how many places a launch has for items, some of which have no work.
constexpr int64_t item_places(int64_t slots, int64_t experts, int64_t per_item) {
  return slots / per_item + experts;
}
// Returns item number `i` of an expert with `count` slots from `first` on.
constexpr ExpertItem item_of(int expert, int first, int count, int per_item, int i) {
  const int begin = i * per_item, left = count - begin;
  return {expert, first + begin, left < 0 ? 0 : left < per_item ? left : per_item, 0};
}

// Points to tables about slots on the device.
struct SlotArrays {
  int32_t* row = nullptr;  // They are [slots] and have the row of the batch.
  // It has the shape [rows][chosen] and the slot of choice k of a row.
  int32_t* slot = nullptr;
  ExpertItem* items = nullptr;
};

// Computes the slots of one expert, their rows and its items, from choices[rows * chosen].
template <typename Lanes>
WALSH_EXPERT_LANE void group_expert(const Lanes& lanes, const int32_t* choices, int count,
                                    int chosen, int expert, int per_item, const SlotArrays& out) {
  int before = 0, own = 0;
  WALSH_EXPERT_UNROLL_8
  for (int i = lanes.index(); i < count; i += lanes.count()) {
    before += choices[i] < expert ? 1 : 0;
    own += choices[i] == expert ? 1 : 0;
  }
  const int first = lanes.total(before), slots = lanes.total(own);
  const int begin = item_place(first, expert, per_item);
  const int end = item_place(first + slots, expert + 1, per_item);
  for (int i = lanes.index(); i < end - begin; i += lanes.count())
    out.items[begin + i] = item_of(expert, first, slots, per_item, i);
  if (slots == 0) return;
  WALSH_EXPERT_UNROLL_8
  for (int base = 0, done = 0; base < count; base += lanes.count()) {
    const int i = base + lanes.index();
    const bool mine = i < count && choices[i] == expert;
    const Rank rank = lanes.rank(mine);
    if (mine) {
      const int slot = first + done + rank.before;
      out.row[slot] = i / chosen;
      out.slot[i] = slot;
    }
    done += rank.all;
  }
}

// Makes every choice a slot and an item of its own, in the order of the choices.
WALSH_EXPERT_LANE void keep_order(int choice, int chosen, int expert, const SlotArrays& out) {
  out.row[choice] = choice / chosen;
  out.slot[choice] = choice;
  out.items[choice] = {expert, choice, 1, 0};
}

// Says how the slots of a batch are multiplied.
struct ExpertPlan {
  enum class Kind : uint8_t {
    // Each slot is multiplied by itself, because rows are few and mostly have different experts.
    single,
    vectors,  // GEMV takes a few slots at a time.
    tiles     // int8 tiles take many slots at a time.
  };
  Kind kind = Kind::single;
  int per_item = 1;

  constexpr bool grouped() const { return kind != Kind::single; }
  constexpr int64_t places(int64_t slots, int64_t experts) const {
    return grouped() ? item_places(slots, experts, per_item) : slots;
  }
};

inline constexpr int64_t kSingleRows = 4;
inline constexpr int kVectorSlots = 8;
// TileShape has tiles of these sizes.
inline constexpr int kMediumTileSlots = 64, kLargeTileSlots = 128;
// Tiles, and large tiles, are used from these average numbers of slots per expert on.
inline constexpr int64_t kTilesFrom = 8, kLargeTilesFrom = 96;

// Chooses the plan. `tiles` says whether there are tile kernels for all matrices of the experts.
constexpr ExpertPlan plan_experts(int64_t rows, int64_t chosen, int64_t experts, bool tiles) {
  if (rows <= kSingleRows) return {ExpertPlan::Kind::single, 1};
  const int64_t average = rows * chosen / experts;
  if (!tiles || average < kTilesFrom) return {ExpertPlan::Kind::vectors, kVectorSlots};
  return {ExpertPlan::Kind::tiles, average < kLargeTilesFrom ? kMediumTileSlots : kLargeTileSlots};
}

// Returns how many items a launch has at most for batches of up to max_rows rows.
constexpr int64_t most_items(int64_t max_rows, int64_t chosen, int64_t experts) {
  const int64_t slots = max_rows * chosen;
  const int64_t single = kSingleRows * chosen;
  const int64_t grouped = item_places(slots, experts, kVectorSlots);
  return single < grouped ? grouped : single;
}

}  // namespace walsh::cuda
