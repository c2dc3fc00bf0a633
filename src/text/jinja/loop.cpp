#include "text/jinja/loop.h"

#include <utility>

#include "text/jinja/operations.h"

namespace walsh::jinja {

Value cycle(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) runtime.fail("no items for cycling given");
  const size_t index = self.loop()->index_ == 0 ? 0 : self.loop()->index_ - 1;
  return arguments.positional[index % arguments.positional.size()];
}

Value changed(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Value now = runtime.tuple(arguments.positional);
  std::optional<Value>& last = self.loop()->last_change_;
  const bool differs = !last || !equal(runtime, *last, now);
  last = now;
  return differs;
}

Loop::Loop(Runtime& runtime, const Value& items, Filter filter, int depth)
    : runtime_(runtime), filter_(std::move(filter)), depth_(depth) {
  runtime.charge(sizeof(Loop));
  Sequence* sequence = items.sequence();
  if (sequence != nullptr && sequence->kind == Sequence::Kind::iterator) {
    iterator_ = sequence;
  } else {
    items_ = iterate(runtime, items);
  }
}

std::optional<Value> Loop::fetch() {
  if (rest_) {
    if (rest_->empty()) return std::nullopt;
    const Value item = rest_->front();
    rest_->pop_front();
    return item;
  }
  const std::vector<Value>& items = iterator_ != nullptr ? iterator_->items : items_;
  size_t& place = iterator_ != nullptr ? iterator_->taken : place_;
  while (place < items.size()) {
    runtime_.step();
    const Value item = items[place++];
    if (!filter_ || filter_(item)) return item;
  }
  return std::nullopt;
}

bool Loop::peek() {
  if (!ahead_) ahead_ = fetch();
  return ahead_.has_value();
}

size_t Loop::total() {
  if (!rest_) {
    std::deque<Value> rest;
    while (std::optional<Value> item = fetch())
      rest.push_back(*item);
    rest_ = std::move(rest);
  }
  return index_ + (ahead_ ? 1 : 0) + rest_->size();
}

std::optional<Value> Loop::next() {
  std::optional<Value> item = ahead_ ? std::exchange(ahead_, std::nullopt) : fetch();
  if (!item) return item;
  previous_ = std::exchange(current_, item);
  ++index_;
  return item;
}

void Loop::close() {
  filter_ = nullptr;
  iterator_ = nullptr;
  items_.clear();
  items_.shrink_to_fit();
  if (!rest_) rest_.emplace();
}

Value Loop::attribute(std::string_view name) {
  const auto number = [](size_t value) { return Value(static_cast<Integer>(value)); };
  if (name == "index") return number(index_);
  if (name == "index0") return Value(static_cast<Integer>(index_) - 1);
  if (name == "first") return index_ == 1;
  if (name == "last") return !peek();
  if (name == "length") return number(total());
  if (name == "revindex") return number(total() - index_ + 1);
  if (name == "revindex0") return number(total() - index_);
  if (name == "depth") return Value(Integer{depth_ + 1});
  if (name == "depth0") return Value(Integer{depth_});
  if (name == "previtem") {
    return previous_ ? *previous_ : runtime_.undefined("there is no previous item");
  }
  if (name == "nextitem") return peek() ? *ahead_ : runtime_.undefined("there is no next item");
  if (name == "cycle") return runtime_.callable({"cycle", &cycle, Value(this)});
  if (name == "changed") return runtime_.callable({"changed", &changed, Value(this)});
  return runtime_.undefined(std::string("the loop has no attribute '") + std::string(name) + "'");
}

}  // namespace walsh::jinja
