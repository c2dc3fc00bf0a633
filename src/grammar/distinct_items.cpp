#include "grammar/distinct_items.h"

#include <algorithm>
#include <set>
#include <utility>

namespace walsh::grammar {
namespace {

constexpr uint64_t kStart = 0x9AE16A3B2F90404Full;

uint64_t longer(uint64_t hash, uint8_t byte) {
  hash = (hash ^ (byte + 1u)) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 32);
}

bool is_space(uint8_t byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

bool has(const std::vector<uint64_t>& hashes, uint64_t hash) {
  return std::find(hashes.begin(), hashes.end(), hash) != hashes.end();
}

}  // namespace

void DistinctItems::Trial::reset() {
  place_ = from_->place_;
  depth_ = from_->depth_;
  hash_ = from_->hash_;
  fresh_ = ended_ = false;
  items_.clear();
  beginnings_.clear();
  open_.clear();
}

bool DistinctItems::Trial::is_new() const {
  if (has(beginnings_, hash_) || (ended_ && has(from_->open_, hash_))) return false;
  return fresh_ || !from_->beginnings_.contains(hash_);
}

void DistinctItems::Trial::begin_item(uint8_t byte) {
  const bool nested = byte == '{' || byte == '[';
  place_ = byte == '"' ? Place::text : nested ? Place::inside : Place::other;
  depth_ = nested ? 1 : 0;
  hash_ = kStart;
  lengthen_item(byte);
}

void DistinctItems::Trial::lengthen_item(uint8_t byte) {
  hash_ = longer(hash_, byte);
  open_.push_back(hash_);
}

bool DistinctItems::Trial::end_item() {
  if (has(items_, hash_) || (!fresh_ && from_->items_.contains(hash_))) return false;
  items_.push_back(hash_);
  beginnings_.insert(beginnings_.end(), open_.begin(), open_.end());
  open_.clear();
  ended_ = !fresh_;
  place_ = Place::behind;
  return true;
}

bool DistinctItems::Trial::read(uint8_t byte, bool opens) {
  switch (place_) {
    case Place::outside:
      if (byte != '[' || !opens) return true;
      fresh_ = true;
      ended_ = false;
      items_.clear();
      beginnings_.clear();
      place_ = Place::before;
      return true;
    case Place::before:
      if (is_space(byte)) return true;
      if (byte == ']') {
        place_ = Place::outside;
      } else {
        begin_item(byte);
      }
      return true;
    case Place::text:
      lengthen_item(byte);
      if (byte == '"') return end_item();
      if (byte == '\\') place_ = Place::escape;
      return true;
    case Place::escape:
      lengthen_item(byte);
      place_ = Place::text;
      return true;
    case Place::inside:
      if (is_space(byte)) return true;
      lengthen_item(byte);
      if (byte == '"') place_ = Place::inner_text;
      if (byte == '{' || byte == '[') ++depth_;
      if ((byte == '}' || byte == ']') && --depth_ == 0) return end_item();
      return true;
    case Place::inner_text:
      lengthen_item(byte);
      if (byte == '"') place_ = Place::inside;
      if (byte == '\\') place_ = Place::inner_escape;
      return true;
    case Place::inner_escape:
      lengthen_item(byte);
      place_ = Place::inner_text;
      return true;
    case Place::other:
      if (byte != ',' && byte != ']' && !is_space(byte)) {
        lengthen_item(byte);
        return true;
      }
      if (!end_item()) return false;
      break;
    case Place::behind:
      break;
  }
  if (byte == ',') place_ = Place::before;
  if (byte == ']') place_ = Place::outside;
  return true;
}

// Follows the beginnings of items that are in the list; that suffices, because a text that leaves
// them is a new item.
bool DistinctItems::Trial::is_lost(StackSpace& space, StateId state) const {
  std::vector<std::pair<StateId, Trial>> waiting = {{state, *this}};
  std::set<std::pair<StateId, uint64_t>> seen;
  while (!waiting.empty()) {
    const auto [at, trial] = waiting.back();
    waiting.pop_back();
    if (trial.place_ == Place::outside || trial.place_ == Place::behind) return false;
    for (unsigned byte = 0; byte < 256; ++byte) {
      space.spend(1);
      const StateId next = space.next(at, static_cast<uint8_t>(byte));
      if (next == StackSpace::kDead) continue;
      Trial then = trial;
      if (!then.read(static_cast<uint8_t>(byte), false)) continue;
      const bool between = then.place_ == Place::before;
      if (!between && then.is_new()) return false;
      if (seen.emplace(next, between ? 0 : then.hash_).second) waiting.emplace_back(next, then);
    }
  }
  return true;
}

void DistinctItems::keep(const Trial& trial) {
  if (trial.fresh_) {
    items_.clear();
    beginnings_.clear();
  } else if (trial.ended_) {
    beginnings_.insert(open_.begin(), open_.end());
  }
  if (trial.fresh_ || trial.ended_) open_.clear();
  place_ = trial.place_;
  depth_ = trial.depth_;
  hash_ = trial.hash_;
  items_.insert(trial.items_.begin(), trial.items_.end());
  beginnings_.insert(trial.beginnings_.begin(), trial.beginnings_.end());
  open_.insert(open_.end(), trial.open_.begin(), trial.open_.end());
}

StateId read_text(StackSpace& space, StateId state, DistinctItems::Trial& items,
                  std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const bool opens = byte == '[' && space.opens_distinct(state);
    state = space.next(state, byte);
    if (state == StackSpace::kDead || !items.read(byte, opens)) return StackSpace::kDead;
  }
  return state;
}

}  // namespace walsh::grammar
