// Declares what the parts of the extension module share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>

namespace walsh::python {

namespace nb = nanobind;

// The Python side makes token ids so: contiguous int32.
using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Returns a path as the Python side makes it, by os.fsencode.
inline std::string path_of(const nb::bytes& path) {
  return {path.c_str(), path.size()};
}

inline std::span<const int32_t> span_of(const Tokens& tokens) {
  return {tokens.data(), tokens.size()};
}

// Tells how far work has come to a function of Python: a thread without the interpreter's lock sets
// it, the thread that waits for the work tells it.
class Progress {
 public:
  explicit Progress(nb::object function) : function_(std::move(function)) {}
  bool wanted() const { return !function_.is_none(); }
  void set(size_t done, size_t count);
  // Calls function(done, count) if that has changed; throws what it throws. Returns false if it
  // wants an end.
  bool tell();

 private:
  nb::object function_;
  std::mutex mutex_;
  size_t done_ = 0, count_ = 0;
  bool changed_ = false;
};

// Runs `work`, which touches no Python object, on a thread of its own without the interpreter's
// lock, while this thread looks for signals: Ctrl-C ends the work (walsh/stop.h) and raises
// KeyboardInterrupt. Errors of the work are thrown here.
void run_interruptible(const std::function<void()>& work);
// Does the same with a progress, which may end the work: Error(interrupted), or what its function
// throws.
void run_interruptible(const std::function<void()>& work, Progress& progress);

// walsh::Error becomes walsh.Error with the same text.
void register_errors(nb::module_& module);

void bind_quantizer(nb::module_& module);
void bind_engine(nb::module_& module);
void bind_operators(nb::module_& module);
void bind_device_operators(nb::module_& module);
void bind_placed_layers(nb::module_& module);

}  // namespace walsh::python
