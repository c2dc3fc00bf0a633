#include "grammar/free_text.h"

namespace walsh::grammar {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// A beginning is a prefix of a mark.
struct Beginning {
  Beginning() { next.fill(kNone); }
  std::array<uint32_t, 256> next;
  uint32_t shorter = 0;        // this is the longest proper suffix that is also a prefix of a mark
  std::optional<NodeId> mark;  // this mark ends here
};

std::vector<Beginning> beginnings_of(const std::vector<FreeText::Mark>& marks) {
  std::vector<Beginning> all(1);
  for (const FreeText::Mark& mark : marks) {
    uint32_t at = 0;
    for (const char c : mark.text) {
      const auto byte = static_cast<uint8_t>(c);
      if (all[at].next[byte] == kNone) {
        all[at].next[byte] = static_cast<uint32_t>(all.size());
        all.emplace_back();
      }
      at = all[at].next[byte];
    }
    all[at].mark = mark.behind;
  }
  return all;
}

// Sets where each byte leads from every prefix; shorter prefixes come first.
void complete(std::vector<Beginning>& all) {
  std::vector<uint32_t> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t at = order[i];
    const uint32_t shorter = all[at].shorter;
    if (!all[at].mark) all[at].mark = all[shorter].mark;
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t otherwise = at == 0 ? 0 : all[shorter].next[byte];
      uint32_t& next = all[at].next[byte];
      if (next == kNone) {
        next = otherwise;
      } else {
        all[next].shorter = otherwise;
        order.push_back(next);
      }
    }
  }
}

}  // namespace

FreeText::FreeText(GraphBuilder& builder, const std::vector<Mark>& marks, std::optional<NodeId> end)
    : builder_(builder) {
  std::vector<Beginning> all = beginnings_of(marks);
  complete(all);
  for (const Beginning& one : all)
    nodes_.push_back(one.mark ? *one.mark : builder.node());
  for (size_t i = 0; i < all.size(); ++i) {
    Targets& targets = targets_.emplace_back();
    for (size_t byte = 0; byte < 256; ++byte)
      targets[byte] = nodes_[all[i].next[byte]];
    if (all[i].mark) continue;
    add_bytes(nodes_[i], targets, {});
    if (end) builder.empty(nodes_[i], *end);
  }
}

void FreeText::join(NodeId from, const std::bitset<256>& except) {
  add_bytes(from, targets_.front(), except);
}

void FreeText::add_bytes(NodeId from, const Targets& targets, const std::bitset<256>& except) {
  for (size_t first = 0; first < 256;) {
    size_t last = first;
    const auto same = [&](size_t byte) {
      return byte < 256 && targets[byte] == targets[first] && except[byte] == except[first];
    };
    while (same(last + 1))
      ++last;
    if (!except[first])
      builder_.byte(from, static_cast<uint8_t>(first), static_cast<uint8_t>(last), targets[first]);
    first = last + 1;
  }
}

}  // namespace walsh::grammar
