#include "text/bpe.h"

#include <algorithm>

#include "text/utf8.h"

namespace walsh {
namespace {

constexpr size_t kMaxWordBytes = size_t{1} << 30;

// Orders a heap whose front is the candidate with the smallest order.
bool later(const BpeModel::Workspace::Candidate& a, const BpeModel::Workspace::Candidate& b) {
  return a.order > b.order;
}

void append_symbol(BpeModel::Workspace& workspace, int32_t id) {
  auto& symbols = workspace.symbols;
  const auto index = static_cast<int32_t>(symbols.size());
  if (!symbols.empty()) {
    symbols.back().next = index;
  }
  symbols.push_back({id, index - 1, -1});
}

}  // namespace

// Returns the id of the token that is this one character, or -1 if there is none.
int32_t BpeModel::character_id(char32_t code) const {
  if (code < low_characters_.size()) {
    return low_characters_[code];
  }
  const auto place = high_characters_.find(code);
  return place == high_characters_.end() ? -1 : place->second;
}

// Replaces a character by its <0xNN> tokens. Returns false if one of them is missing.
bool BpeModel::append_bytes(std::string_view character, Workspace& workspace) const {
  const auto id_of = [this](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (!std::all_of(character.begin(), character.end(), [&](char c) { return id_of(c) >= 0; })) {
    return false;
  }
  for (const char c : character) {
    append_symbol(workspace, id_of(c));
  }
  return true;
}

// Makes the first symbols. An unknown token stays pending until the next known character, so byte
// tokens between them come first. That is the order of the tokenizers library, which the ids have
// to match.
void BpeModel::split_characters(std::string_view word, Workspace& workspace) const {
  workspace.symbols.clear();
  bool pending = false;
  const auto flush = [&] {
    if (pending) {
      append_symbol(workspace, unk_id_);
    }
    pending = false;
  };
  while (!word.empty()) {
    const Utf8Unit unit = decode_utf8(word);
    const std::string_view character = word.substr(0, unit.size);
    word.remove_prefix(unit.size);
    if (const int32_t id = character_id(unit.code); id >= 0) {
      flush();
      append_symbol(workspace, id);
      continue;
    }
    if ((byte_fallback_ && append_bytes(character, workspace)) || !has_unk_) {
      continue;
    }
    if (unk_id_ < 0) {
      throw Error(ErrorCode::bad_input, where_,
                  "the text needs the unk_token, which is not in the vocabulary");
    }
    if (!fuse_unk_) {
      flush();
    }
    pending = true;
  }
  flush();
}

// Pushes the merge of a symbol with its right neighbour, which must exist. The heap order is not
// restored.
void BpeModel::push_candidate(Workspace& workspace, int32_t left) const {
  const auto& symbols = workspace.symbols;
  const auto& symbol = symbols[static_cast<size_t>(left)];
  const Merge* merge = merges_.find(symbol.id, symbols[static_cast<size_t>(symbol.next)].id);
  if (merge != nullptr) {
    const uint64_t order = (uint64_t{merge->rank} << 32) | static_cast<uint32_t>(left);
    workspace.heap.push_back({order, merge->result});
  }
}

// Merges symbols until no merge is left. Candidates are never removed from the heap when a
// neighbour changes; one that no longer matches is skipped when it comes up. Each merge adds at
// most two, so the whole takes O(n log n).
void BpeModel::merge_symbols(Workspace& workspace, StepBudget& steps) const {
  auto& symbols = workspace.symbols;
  auto& heap = workspace.heap;
  heap.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    steps.spend(1, where_);
    push_candidate(workspace, static_cast<int32_t>(i));
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](int32_t left) {
    const size_t before = heap.size();
    push_candidate(workspace, left);
    if (heap.size() != before) {
      std::push_heap(heap.begin(), heap.end(), later);
    }
  };
  while (!heap.empty()) {
    steps.spend(1, where_);
    std::pop_heap(heap.begin(), heap.end(), later);
    const Workspace::Candidate best = heap.back();
    heap.pop_back();
    const auto position = static_cast<int32_t>(best.order & 0xFFFFFFFF);
    auto& left = symbols[static_cast<size_t>(position)];
    if (left.id < 0 || left.next < 0) {
      continue;
    }
    auto& right = symbols[static_cast<size_t>(left.next)];
    const Merge* merge = merges_.find(left.id, right.id);
    if (merge == nullptr || merge->result != best.result) {
      continue;  // one of the two symbols was merged meanwhile
    }
    left.id = best.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) {
      symbols[static_cast<size_t>(left.next)].previous = position;
    }
    if (left.previous >= 0) {
      push(left.previous);
    }
    if (left.next >= 0) {
      push(position);
    }
  }
}

void BpeModel::encode(std::string_view word, Workspace& workspace, StepBudget& steps,
                      std::vector<int32_t>& ids) const {
  if (word.size() > kMaxWordBytes) {
    throw Error(ErrorCode::limit, where_, "a word of more than 1 GiB");
  }
  if (ignore_merges_) {
    if (const auto id = vocabulary_.find_own(word)) {
      ids.push_back(*id);
      return;
    }
  }
  split_characters(word, workspace);
  merge_symbols(workspace, steps);
  for (const auto& symbol : workspace.symbols) {
    if (symbol.id >= 0) {
      ids.push_back(symbol.id);
    }
  }
}

}  // namespace walsh
