#include "grammar/token_vocabulary.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "text/utf8.h"

namespace walsh::grammar {
namespace {

constexpr size_t kLongestToken = 4096;  // it counts bytes; longer tokens are never allowed

// Returns the characters of a text if all of them are plain (StackSpace::next_plain).
std::optional<uint32_t> plain_characters(std::string_view text) {
  uint32_t count = 0;
  for (; !text.empty(); ++count) {
    const Utf8Unit unit = decode_utf8(text);
    if (unit.kind != Utf8Unit::Kind::valid || unit.code < 0x20 || unit.code == 0x7F ||
        unit.code == '"' || unit.code == '\\')
      return std::nullopt;
    text.remove_prefix(unit.size);
  }
  return count;
}

std::vector<std::string> texts_of(const Tokenizer& tokenizer, int64_t size) {
  std::vector<std::string> texts = tokenizer.token_bytes();
  texts.resize(static_cast<size_t>(size));
  for (size_t id = 0; id < texts.size(); ++id)
    if (tokenizer.is_special(static_cast<int32_t>(id))) texts[id].insert(0, 1, kSpecialMark);
  return texts;
}

}  // namespace

void TokenSet::add_all(const TokenSet& other) {
  for (size_t i = 0; i < words_.size(); ++i)
    words_[i] |= other.words_[i];
}

void TokenSet::keep_only(const TokenSet& other) {
  for (size_t i = 0; i < words_.size(); ++i)
    words_[i] &= other.words_[i];
}

bool TokenSet::empty() const {
  return std::all_of(words_.begin(), words_.end(), [](uint64_t word) { return word == 0; });
}

TokenTree::TokenTree(std::vector<std::pair<std::string, int32_t>> tokens) {
  std::sort(tokens.begin(), tokens.end());
  std::vector<uint32_t> path;  // it has the nodes of the last text
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
  };
  std::string_view last;
  for (const auto& [text, token] : tokens) {
    const auto differ = std::mismatch(text.begin(), text.end(), last.begin(), last.end());
    close(static_cast<size_t>(differ.first - text.begin()));
    while (path.size() < text.size()) {
      const auto byte = static_cast<uint8_t>(text[path.size()]);
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {0, static_cast<uint32_t>(tokens_.size()), static_cast<uint16_t>(path.size()), byte});
    }
    tokens_.push_back(token);
    last = text;
    longest_ = std::max(longest_, text.size());
  }
  close(0);
  nodes_.push_back({0, static_cast<uint32_t>(tokens_.size()), 0, 0});
}

void TokenTree::add_readable(StackSpace& space, StateId state, TokenSet& tokens) const {
  std::vector<StateId> states(longest_ + 1);  // each depth has one
  states[0] = state;
  const auto count = static_cast<uint32_t>(nodes_.size() - 1);
  for (uint32_t i = 0; i < count;) {
    const Node& node = nodes_[i];
    space.spend(1);
    const StateId next = space.next(states[node.depth - 1u], node.byte);
    if (next == StackSpace::kDead) {
      i = node.end;
      continue;
    }
    states[node.depth] = next;
    for (uint32_t at = node.first; at < nodes_[i + 1].first; ++at)
      tokens.add(tokens_[at]);
    ++i;
  }
}

TokenVocabulary::TokenVocabulary(const Tokenizer& tokenizer, int64_t size)
    : TokenVocabulary(texts_of(tokenizer, size)) {}

TokenVocabulary::TokenVocabulary(std::vector<std::string> texts)
    : texts_(std::move(texts)), all_plain_(texts_.size()) {
  std::vector<std::pair<std::string, int32_t>> plain, others;
  for (size_t id = 0; id < texts_.size(); ++id) {
    const std::string& text = texts_[id];
    if (text.empty() || text.size() > kLongestToken) continue;
    const auto token = static_cast<int32_t>(id);
    if (const auto characters = plain_characters(text)) {
      plain_.push_back({*characters, token});
      all_plain_.add(token);
      plain.emplace_back(text, token);
    } else {
      others.emplace_back(text, token);
    }
  }
  std::stable_sort(plain_.begin(), plain_.end(),
                   [](const Plain& a, const Plain& b) { return a.characters < b.characters; });
  trees_.emplace_back(std::move(plain));
  trees_.emplace_back(std::move(others));
}

TokenSet TokenVocabulary::readable(StackSpace& space, StateId state) const {
  TokenSet tokens(texts_.size());
  trees_[1].add_readable(space, state, tokens);
  const uint32_t longest = plain_.empty() ? 0 : plain_.back().characters;
  StateId at = state;
  for (uint32_t count = 0;; ++count) {
    const StateId next = space.next_plain(at);
    if (next == at || count == longest) {
      tokens.add_all(all_plain_);
      return tokens;
    }
    if (next == StackSpace::kDiffers) break;
    if (next == StackSpace::kDead) {
      for (const Plain& plain : plain_)
        if (plain.characters <= count) tokens.add(plain.token);
      return tokens;
    }
    at = next;
  }
  trees_[0].add_readable(space, state, tokens);
  return tokens;
}

}  // namespace walsh::grammar
