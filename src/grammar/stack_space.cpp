#include "grammar/stack_space.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "walsh/error.h"

namespace walsh::grammar {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

uint64_t pair_of(uint32_t a, uint32_t b) {
  return uint64_t{a} << 32 | b;
}

// Returns the byte sequences of printable characters (Unicode 15, table 3-7) other than a quote and
// a backslash.
using Range = std::pair<uint8_t, uint8_t>;
constexpr Range kAny{0x80, 0xBF};
const std::vector<std::vector<Range>>& plain_sequences() {
  static const std::vector<std::vector<Range>> all = {
      {{0x20, 0x21}},
      {{0x23, 0x5B}},
      {{0x5D, 0x7E}},
      {{0xC2, 0xDF}, kAny},
      {{0xE0, 0xE0}, {0xA0, 0xBF}, kAny},
      {{0xE1, 0xEC}, kAny, kAny},
      {{0xED, 0xED}, {0x80, 0x9F}, kAny},
      {{0xEE, 0xEF}, kAny, kAny},
      {{0xF0, 0xF0}, {0x90, 0xBF}, kAny, kAny},
      {{0xF1, 0xF3}, kAny, kAny, kAny},
      {{0xF4, 0xF4}, {0x80, 0x8F}, kAny, kAny},
  };
  return all;
}

}  // namespace

StackSpace::StackSpace(const Graph& graph, std::string where)
    : graph_(graph),
      where_(std::move(where)),
      classes_(graph.class_bytes.size()),
      below_(graph.nodes.size(), kDead) {
  sets_.resize(2);
  sets_[kBottom].bottom = true;
  rows_.resize(2, kNoRow);
}

void StackSpace::out_of_steps() const {
  throw Error(ErrorCode::limit, where_, "is too ambiguous to be followed");
}

StateId StackSpace::start() {
  std::vector<Frame> seeds = {{graph_.rules[graph_.root].start, kBottom}};
  return closure(seeds);
}

// Returns the number of a set. Sorts its frames, no two of which have the same node.
StateId StackSpace::intern(std::vector<Frame>& frames, bool bottom) {
  if (frames.empty()) return bottom ? kBottom : kDead;
  std::sort(frames.begin(), frames.end(),
            [](const Frame& a, const Frame& b) { return a.node < b.node; });
  uint64_t hash = bottom ? 1 : 0;
  int depth = 0;
  for (const Frame& frame : frames) {
    hash = mix(hash, pair_of(frame.node, frame.below));
    depth = std::max(depth, sets_[frame.below].depth);
  }
  spend(frames.size());
  const auto [begin, end] = interned_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Set& set = sets_[it->second];
    const auto known = this->frames(it->second);
    if (set.bottom == bottom &&
        std::equal(known.begin(), known.end(), frames.begin(), frames.end()))
      return it->second;
  }
  const auto id = static_cast<StateId>(sets_.size());
  sets_.push_back({static_cast<uint32_t>(frames_.size()), static_cast<uint32_t>(frames.size()),
                   bottom, depth + 1});
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  rows_.push_back(kNoRow);
  interned_.emplace(hash, id);
  const size_t added = 64 + sizeof(Set) + frames.size() * sizeof(Frame);
  bytes_ += added;
  spend(added / 16);
  return id;
}

StateId StackSpace::unite(StateId a, StateId b) {
  if (a == b || b == kDead) return a;
  if (a == kDead) return b;
  if (a > b) std::swap(a, b);
  if (const auto known = united_.find(pair_of(a, b)); known != united_.end()) return known->second;
  spend(sets_[a].count + sets_[b].count);
  std::vector<Frame> both;
  for (size_t i = 0, j = 0; i < sets_[a].count || j < sets_[b].count;) {
    // The spans move when a union below creates new sets.
    const Frame* x = i < sets_[a].count ? &frames(a)[i] : nullptr;
    const Frame* y = j < sets_[b].count ? &frames(b)[j] : nullptr;
    if (x != nullptr && y != nullptr && x->node == y->node) {
      const Frame first = *x, second = *y;
      both.push_back({first.node, unite(first.below, second.below)});
      ++i, ++j;
    } else if (y == nullptr || (x != nullptr && x->node < y->node)) {
      both.push_back(*x);
      ++i;
    } else {
      both.push_back(*y);
      ++j;
    }
  }
  const StateId result = intern(both, sets_[a].bottom || sets_[b].bottom);
  united_.emplace(pair_of(a, b), result);
  bytes_ += 32;
  return result;
}

StateId StackSpace::compute_next(StateId state, uint8_t byte_class) {
  if (state == kDead || state == kBottom) return kDead;
  std::vector<Frame> seeds;
  const uint8_t byte = graph_.class_bytes[byte_class];
  for (const Frame& frame : frames(state)) {
    const Node& node = graph_.nodes[frame.node];
    spend(1 + node.bytes.size());
    for (const ByteEdge& edge : node.bytes)
      if (edge.first <= byte && byte <= edge.last) seeds.push_back({edge.target, frame.below});
  }
  const StateId result = seeds.empty() ? kDead : closure(seeds);
  if (rows_[state] == kNoRow) {
    rows_[state] = static_cast<uint32_t>(table_.size() / classes_);
    table_.resize(table_.size() + classes_, kUnknown);
    plain_.push_back(kUnknown);
    bytes_ += (classes_ + 1) * sizeof(StateId);
    spend(classes_ / 4);
  }
  table_[size_t{rows_[state]} * classes_ + byte_class] = result;
  return result;
}

// Adds stacks below a node, unless its end is too many calls away.
void StackSpace::enter(NodeId node, StateId below) {
  spend(1);
  if (sets_[below].depth + graph_.depth[node] > kMaxDepth) return;
  const StateId before = below_[node];
  const StateId now = unite(before, below);
  if (now == before) return;
  below_[node] = now;
  if (before == kDead) entered_.push_back(node);
  waiting_.emplace_back(graph_.rank[node], node);
  std::push_heap(waiting_.begin(), waiting_.end(), std::greater<>());
}

// Follows edges that do not enter a rule; ends return to their callers. Returns true if the whole
// text may end.
bool StackSpace::read_ends(std::vector<Frame>& found) {
  bool bottom = false;
  std::unordered_set<uint64_t> seen;
  std::vector<Frame> list;
  const auto add = [&](NodeId node, StateId below) {
    spend(1);
    if (seen.insert(pair_of(node, below)).second) list.push_back({node, below});
  };
  for (const Frame& frame : found)
    add(frame.node, frame.below);
  for (size_t i = 0; i < list.size(); ++i) {
    const Frame frame = list[i];
    const Node& node = graph_.nodes[frame.node];
    for (const NodeId to : node.empty)
      add(to, frame.below);
    for (const CallEdge& edge : node.calls)
      if (graph_.rules[edge.rule].empty) add(edge.back, frame.below);
    if (!graph_.is_end[frame.node]) continue;
    bottom |= sets_[frame.below].bottom;
    for (const Frame& caller : frames(frame.below))
      add(caller.node, caller.below);
  }
  found = std::move(list);
  return bottom;
}

// Follows everything reachable from the seeds without consuming; the result has the nodes that
// consume. Nodes are entered in the order of their ranks, so that all stacks below a node are
// complete when it calls a rule. A rule that matches the empty text also lets its callers continue
// at once.
StateId StackSpace::closure(std::vector<Frame>& seeds) {
  for (const NodeId node : entered_)  // they are left over if an error ended the last closure
    below_[node] = kDead;
  entered_.clear();
  waiting_.clear();
  const bool bottom = read_ends(seeds);
  for (const Frame& frame : seeds)
    enter(frame.node, frame.below);
  while (!waiting_.empty()) {
    std::pop_heap(waiting_.begin(), waiting_.end(), std::greater<>());
    const NodeId id = waiting_.back().second;
    waiting_.pop_back();
    const StateId below = below_[id];
    const Node& node = graph_.nodes[id];
    for (const NodeId to : node.empty)
      enter(to, below);
    for (const CallEdge& edge : node.calls) {
      const Rule& rule = graph_.rules[edge.rule];
      if (rule.empty) enter(edge.back, below);
      if (sets_[below].depth + graph_.depth[edge.back] > kMaxDepth) continue;
      std::vector<Frame> caller = {{edge.back, below}};
      // If the return node is an end, the call returns to its own caller directly.
      enter(rule.start, graph_.is_end[edge.back] ? below : intern(caller, false));
    }
  }
  std::vector<Frame> result;
  for (const NodeId node : entered_)
    if (!graph_.nodes[node].bytes.empty()) result.push_back({node, below_[node]});
  return intern(result, bottom);
}

// Returns the state after each of these byte sequences if it is the same for all, and otherwise
// kDiffers.
StateId StackSpace::uniform(StateId state, std::span<const Range> bytes) {
  if (bytes.empty()) return state;
  StateId all = kDiffers;
  for (unsigned byte = bytes[0].first; byte <= bytes[0].second;) {
    const StateId one = uniform(next(state, static_cast<uint8_t>(byte)), bytes.subspan(1));
    if (one == kDiffers || (all != kDiffers && one != all)) return kDiffers;
    all = one;
    const uint8_t byte_class = graph_.classes[byte];
    while (byte <= bytes[0].second && graph_.classes[byte] == byte_class)
      ++byte;
  }
  return all;
}

StateId StackSpace::next_plain(StateId state) {
  if (state == kDead || state == kBottom) return kDead;
  const StateId first = next(state, ' ');
  StateId& known = plain_[rows_[state]];
  if (known != kUnknown) return known;
  StateId all = first;
  for (const auto& sequence : plain_sequences()) {
    if (uniform(state, sequence) == all) continue;
    all = kDiffers;
    break;
  }
  return plain_[rows_[state]] = all;
}

bool StackSpace::opens_distinct(StateId state) const {
  if (graph_.opens_distinct.empty()) return false;
  const auto all = frames(state);
  return std::any_of(all.begin(), all.end(),
                     [&](const Frame& frame) { return graph_.opens_distinct[frame.node]; });
}

StateId StackSpace::import(const StackSpace& other, StateId state) {
  std::unordered_map<StateId, StateId> known = {{kDead, kDead}, {kBottom, kBottom}};
  // Sets are made before those above them, so they have smaller numbers.
  std::vector<StateId> all = {state};
  std::unordered_set<StateId> listed = {state};
  for (size_t i = 0; i < all.size(); ++i)
    for (const Frame& frame : other.frames(all[i]))
      if (listed.insert(frame.below).second) all.push_back(frame.below);
  std::sort(all.begin(), all.end());
  for (const StateId id : all) {
    if (known.contains(id)) continue;
    std::vector<Frame> copies;
    for (const Frame& frame : other.frames(id))
      copies.push_back({frame.node, known.at(frame.below)});
    known[id] = intern(copies, other.sets_[id].bottom);
  }
  return known.at(state);
}

}  // namespace walsh::grammar
