// Lets texts go on that have filled the context. What stays is evaluated again at its new
// positions, so that a text goes on exactly as one that begins with what stays. llama.cpp turns
// cached keys to their new positions instead. That is cheaper but approximate: the keys were
// computed from states that had seen the dropped text, and coded keys would be rounded twice.
#include <algorithm>

#include "schedule/scheduler.h"

namespace walsh {

// Returns the most tokens of a text that the session can hold.
int64_t Scheduler::room() const {
  const KvShape& shape = session_.pages().shape();
  return std::min(shape.capacity, shape.pages * shape.page_positions);
}

// Returns at most half of the context, so that a shift makes room for a quarter of it.
int64_t Scheduler::kept_at_shift(const TextRequest& request) const {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t wanted = request.keep < 0 ? prompt : std::min(request.keep, prompt);
  return std::min(wanted, room() / 2);
}

// Drops whole halves of what may move from the middle of a prompt, as few as needed.
void Scheduler::cut_prompt(Active& active) const {
  const int64_t count = std::ssize(active.tokens), kept = kept_at_shift(active.request);
  const int64_t half = std::max<int64_t>(1, (room() - kept) / 2);
  active.dropped = std::max<int64_t>(0, (count - kept - half) / half * half);
  const auto from = active.tokens.begin() + kept;
  active.tokens.erase(from, from + active.dropped);
  active.request.prompt = active.tokens;
}

// Drops half of the text after what is kept. Returns false if that makes no room.
bool Scheduler::shift(Active& active) {
  const int64_t kept = kept_at_shift(active.request);
  const int64_t dropped = (std::ssize(active.tokens) - kept) / 2;
  if (dropped < 1) return false;
  end_drafts(active);
  const auto from = active.tokens.begin() + kept;
  active.tokens.erase(from, from + dropped);
  active.dropped += dropped;
  // Coded keys and values of the beginning may be rounded already, where a text that begins so has
  // them as they are.
  const int64_t wanted = session_.model().cache.coded() ? 0 : std::min(kept, active.evaluated);
  session_.truncate(wanted, active.sequence);
  active.evaluated = session_.position(active.sequence);
  begin_drafts(active);
  ++totals_.shifts;
  return true;
}

void Scheduler::shift_full() {
  for (const auto& active : running_) {
    if (!active->full || active->ended || active->error) continue;
    active->full = false;
    if (!shift(*active)) active->ended = StopReason::context_full;
  }
}

}  // namespace walsh
