// Gives texts sequences of the session that begin as they do, and keeps what texts leave.
#include <algorithm>

#include "schedule/scheduler.h"

namespace walsh {

bool Scheduler::shares_prefixes(const Active& active) const {
  const TextRequest& request = active.request;
  return options_.share_prefixes && request.shares_prefix && !request.prompt_logprobs &&
         request.reading != Reading::mean && request.reading != Reading::cls;
}

Scheduler::Known Scheduler::known_prefix(const Active& active) const {
  Known known;
  if (!shares_prefixes(active)) return known;
  // The last token is always evaluated, because its logits are needed.
  const auto most = std::ssize(active.tokens) - 1;
  const auto offer = [&](int64_t sequence, int64_t common, bool kept) {
    const int64_t shared =
        reachable_whole(session_, sequence, active.request.images, std::min(most, common));
    if (shared > known.common) known = {sequence, shared, kept};
  };
  const TextKey key = active.key();
  if (const PrefixCache::Entry* entry = prefixes_.find(key, active.request.owner, least_prefix_))
    offer(entry->sequence, common_prefix(key, entry->key()), true);
  for (const auto& other : running_) {
    if (other->request.owner != active.request.owner) continue;
    const int64_t common = std::min({most, other->evaluated, common_prefix(key, other->key())});
    if (common >= least_prefix_) offer(other->sequence, common, false);
  }
  return known;
}

// Returns whether running texts and kept prefixes have taken all sequences of the session.
bool Scheduler::is_full() const {
  return static_cast<int64_t>(running_.size() + prefixes_.size()) >= session_.sequences();
}

// Opens a sequence of the session that shares what it can with a known one. A kept sequence is
// taken over itself if nothing has to be taken back, or if there is no place for another.
void Scheduler::give_sequence(Active& active, const Known& known) {
  if (is_full() && !known.kept) drop_kept();
  if (known.sequence < 0) {
    active.sequence = session_.open();
  } else if (known.kept && (is_full() || known.common == session_.position(known.sequence))) {
    prefixes_.take(known.sequence);
    session_.truncate(known.common, known.sequence);
    active.sequence = known.sequence;
  } else {
    if (known.kept) prefixes_.touch(known.sequence);
    active.sequence = session_.fork(known.sequence, known.common);
  }
  active.evaluated = known.common;
  if (active.generated != 0) return;  // the prompt was counted when the request was first admitted
  active.cached = known.common;
  totals_.cached_tokens += static_cast<uint64_t>(known.common);
}

// A device that is ahead has evaluated the token that ended the text. That token is taken back, or
// becomes a part of what is kept where the state after the text is gone.
void Scheduler::keep_known(Active& active) {
  const auto known = static_cast<int64_t>(active.tokens.size());
  if (active.evaluated <= known) return;
  if (session_.reachable(active.sequence, known) == known) {
    session_.truncate(known, active.sequence);
  } else {
    active.tokens.push_back(active.stop);
  }
  active.evaluated = session_.position(active.sequence);
}

// Keeps the sequence of a request for others, or closes it.
void Scheduler::release(Active& active) {
  if (active.sequence < 0) return;
  crowded_ = false;
  const int64_t sequence = active.sequence;
  if (!options_.share_prefixes || options_.kept == 0 || active.error ||
      active.evaluated < least_prefix_) {
    active.sequence = -1;
    session_.close(sequence);
    return;
  }
  keep_known(active);
  active.sequence = -1;
  active.tokens.resize(static_cast<size_t>(active.evaluated));
  for (const int64_t closed :
       prefixes_.keep({sequence, std::move(active.tokens), active.request.owner,
                       keys_of(active.request.images), active.place}))
    session_.close(closed);
  if (static_cast<int64_t>(prefixes_.size()) > options_.kept) drop_kept();
}

bool Scheduler::drop_kept() {
  const auto oldest = prefixes_.take_oldest();
  if (!oldest) return false;
  store_prefix(*oldest, false);
  session_.close(oldest->sequence);
  return true;
}

std::span<const int32_t> Scheduler::kept_tokens() const {
  const PrefixCache::Entry* latest = prefixes_.latest();
  return latest != nullptr ? std::span<const int32_t>(latest->tokens) : std::span<const int32_t>();
}

void Scheduler::forget() {
  while (drop_kept()) {
  }
}

}  // namespace walsh
