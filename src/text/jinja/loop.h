// Implements the variable `loop` of a for loop, from which the loop also takes its items.
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

  // Items that `filter` (if any) rejects are skipped. It is called for one item at a time, as late
  // as possible, because the body may change what the filter depends on.
  Loop(Runtime& runtime, const Value& items, Filter filter, int depth);

  // Returns the next item, or nothing.
  std::optional<Value> next();
  // Ends the loop. Attributes remain readable, but there are no more items.
  void close();

  // Returns `loop.name`, which is undefined for an unknown name.
  Value attribute(std::string_view name);
  size_t length(Runtime&) { return total(); }
  int depth() const { return depth_; }

  const Statement* statement = nullptr;  // only a recursive loop has it; its scope is below
  Scope* scope = nullptr;

 private:
  friend Value cycle(Runtime&, const Value& self, const Arguments&);
  friend Value changed(Runtime&, const Value& self, const Arguments&);
  std::optional<Value> fetch();
  bool peek();
  size_t total();

  Runtime& runtime_;
  Filter filter_;
  Sequence* iterator_ = nullptr;  // the source is kept here if it can be read only once
  std::vector<Value> items_;      // otherwise its items are copied here
  size_t place_ = 0;
  // The remaining items are kept here once the length was asked for.
  std::optional<std::deque<Value>> rest_;
  std::optional<Value> ahead_, current_, previous_;
  std::optional<Value> last_change_;
  size_t index_ = 0;  // it is the number of the current item, counted from 1
  int depth_;
};

}  // namespace walsh::jinja
