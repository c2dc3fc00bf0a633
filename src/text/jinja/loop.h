// The variable `loop` of a for loop, which is also what the loop takes its items from.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"

namespace walsh::jinja {

struct Statement;

class Loop {
 public:
  using Filter = std::function<bool(const Value&)>;

  // Items that `filter` (if there is one) refuses are left out. They are asked for one at a time,
  // as late as possible: a body may change what the filter depends on.
  Loop(Runtime& runtime, const Value& items, Filter filter, int depth);

  // The next item, or nothing.
  std::optional<Value> next();
  // The loop has ended: it can still be asked, but has no further items.
  void close();

  // `loop.name`; undefined if there is no such thing.
  Value attribute(std::string_view name);
  size_t length(Runtime&) { return total(); }
  int depth() const { return depth_; }

  const Statement* statement = nullptr;  // of a recursive loop, with the scope around it
  Scope* scope = nullptr;

 private:
  friend Value cycle(Runtime&, const Value& self, const Arguments&);
  friend Value changed(Runtime&, const Value& self, const Arguments&);
  std::optional<Value> fetch();
  bool peek();
  size_t total();

  Runtime& runtime_;
  Filter filter_;
  Sequence* iterator_ = nullptr;  // the source, if it can be read only once
  std::vector<Value> items_;      // or a copy of it
  size_t place_ = 0;
  std::optional<std::deque<Value>> rest_;  // what is left, once the length was asked for
  std::optional<Value> ahead_, current_, previous_;
  std::optional<Value> last_change_;
  size_t index_ = 0;  // of the current item, from 1
  int depth_;
};

}  // namespace walsh::jinja
