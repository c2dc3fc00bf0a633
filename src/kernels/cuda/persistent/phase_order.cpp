#include "kernels/cuda/persistent/phase_order.h"

#include <algorithm>

namespace walsh::cuda {

PhaseOrder::Phase PhaseOrder::next(Work work, std::span<ExchangeArray* const> in) const {
  const int index = static_cast<int>(phases_.size());
  int from = -1;  // the last phase that wrote an array of `in`
  for (const ExchangeArray* array : in)
    from = std::max(from, array->written);
  const auto read = std::count_if(
      in.begin(), in.end(), [&](const ExchangeArray* array) { return array->written == from; });
  Phase before{-1, -1, 0};
  if (from >= 0 && phases_[static_cast<size_t>(from)].results == read)
    before = phases_[static_cast<size_t>(from)];
  if (work == Work::matmul) return {before.complete, index, 0};
  // All inputs have arrived and been read; nothing is known about the phases in between.
  return {before.writing, before.complete == index - 1 ? index : before.complete, 0};
}

bool PhaseOrder::may_add(Work work, std::span<ExchangeArray* const> in,
                         std::span<ExchangeArray* const> out) const {
  const int writing = next(work, in).writing;
  return std::all_of(out.begin(), out.end(), [&](const ExchangeArray* array) {
    const bool reads_itself = std::find(in.begin(), in.end(), array) != in.end();
    return !reads_itself && std::max(array->read, array->written) <= writing;
  });
}

bool PhaseOrder::add(Work work, std::span<ExchangeArray* const> in,
                     std::span<ExchangeArray* const> out) {
  if (!may_add(work, in, out)) return false;
  const int index = static_cast<int>(phases_.size());
  phases_.push_back(next(work, in));
  phases_.back().results = static_cast<int64_t>(out.size());
  for (ExchangeArray* array : in)
    array->read = index;
  for (ExchangeArray* array : out) {
    array->written = index;
    ++array->writes;
  }
  return true;
}

}  // namespace walsh::cuda
