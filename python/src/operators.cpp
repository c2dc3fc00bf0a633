// Linear layers for other frameworks: pointers, shapes and strides come from Python, whose tensors
// stay alive during a call.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "api/linear_operator.h"
#include "module.h"
#include "walsh/error.h"

namespace walsh::python {
namespace {

// Kind, block, seed and signs of a rotation.
using RotationTuple = std::tuple<std::string, int, uint32_t, bool>;
// Address, name of the type, rows, columns and stride of a matrix.
using MatrixTuple = std::tuple<uint64_t, std::string, int64_t, int64_t, int64_t>;

DType dtype_of(const std::string& name) {
  if (name == "float32") return DType::f32;
  if (name == "float16") return DType::f16;
  if (name == "bfloat16") return DType::bf16;
  throw Error(ErrorCode::usage, name, "expected float32, float16 or bfloat16");
}

MatrixView view_of(const MatrixTuple& matrix) {
  const auto& [address, type, rows, cols, stride] = matrix;
  // A pointer crosses the border as a number.
  return {reinterpret_cast<const void*>(address), dtype_of(type), rows, cols, stride};
}

LayerForm form_of(const std::string& type, int64_t rows, int64_t cols,
                  const std::vector<RotationTuple>& rotations) {
  LayerForm form = {&get_format(type), rows, cols, {}};
  if (rotations.size() != static_cast<size_t>(form.format->passes)) {
    throw Error(ErrorCode::bad_input, "rotation",
                "one for each of the " + std::to_string(form.format->passes) + " passes expected");
  }
  for (size_t pass = 0; pass < rotations.size(); ++pass) {
    const auto& [kind, block, seed, signs] = rotations[pass];
    const bool power = block >= 32 && block <= 1024 && (block & (block - 1)) == 0;
    if (!power) throw Error(ErrorCode::bad_input, "rotation block", std::to_string(block));
    form.rotation[pass] = {parse_rotation_kind(kind), block, seed, signs};
  }
  return form;
}

// The OpenMP threads of the host. Two sets of threads on the same cores wait for each other: those
// of OpenMP spin for milliseconds behind each parallel region, and may be bound to cores.
class HostThreads {
 public:
  HostThreads() = default;
  // Addresses of GOMP_parallel, omp_get_thread_num and omp_get_num_threads in the runtime that the
  // host uses; those of Intel and LLVM have the first as well.
  HostThreads(uint64_t parallel, uint64_t thread, uint64_t threads)
      : parallel_(reinterpret_cast<Parallel>(parallel)),
        thread_(reinterpret_cast<Number>(thread)),
        threads_(reinterpret_cast<Number>(threads)) {}

  bool usable() const { return parallel_ != nullptr; }
  void run(FunctionRef<void(int, int)> task) const {
    Region region{this, task, {}, {}};
    parallel_(&HostThreads::work, &region, 0, 0);
    if (region.error) std::rethrow_exception(region.error);
  }

 private:
  using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
  using Number = int (*)();
  struct Region {
    const HostThreads* host;
    FunctionRef<void(int, int)> task;
    std::mutex mutex;
    std::exception_ptr error;
  };
  static void work(void* data) {
    auto& region = *static_cast<Region*>(data);
    try {
      region.task(region.host->thread_(), region.host->threads_());
    } catch (...) {  // may not leave a parallel region
      const std::lock_guard lock(region.mutex);
      region.error = std::current_exception();
    }
  }

  Parallel parallel_ = nullptr;
  Number thread_ = nullptr, threads_ = nullptr;
};

// The layers of this process by number, and the threads that multiply with them.
class Layers {
 public:
  static Layers& all() {
    static Layers* layers = new Layers;  // threads of the interpreter may outlive static objects
    return *layers;
  }

  int64_t add(LinearOperator layer) {
    const std::lock_guard lock(mutex_);
    layers_.emplace(++last_, std::make_shared<const LinearOperator>(std::move(layer)));
    return last_;
  }
  void remove(int64_t handle) {
    const std::lock_guard lock(mutex_);
    layers_.erase(handle);
  }
  std::shared_ptr<const LinearOperator> find(int64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = layers_.find(handle);
    if (found != layers_.end()) return found->second;
    throw Error(ErrorCode::usage, "layer " + std::to_string(handle), "it is gone");
  }
  template <typename Body>
  void with_pool(const Body& body) {
    const std::lock_guard lock(pool_mutex_);
    if (!pool_) pool_ = std::make_unique<ThreadPool>(threads_);
    body(*pool_);
  }
  // Calls body(run) with the host's threads, or with those of the pool.
  template <typename Body>
  void with_threads(const Body& body) {
    if (host_.usable() && host_threads_.load()) {
      body([this](FunctionRef<void(int, int)> task) { host_.run(task); });
    } else {
      with_pool([&](ThreadPool& pool) {
        body([&pool](FunctionRef<void(int, int)> task) { pool.run(task); });
      });
    }
  }
  void set_host(const HostThreads& host) { host_ = host; }
  void set_threads(int threads) {
    const std::lock_guard lock(pool_mutex_);
    host_threads_.store(threads == 0);
    if (threads == threads_) return;
    threads_ = threads;
    pool_.reset();
  }

 private:
  std::mutex mutex_, pool_mutex_;
  std::map<int64_t, std::shared_ptr<const LinearOperator>> layers_;
  int64_t last_ = 0;
  int threads_ = 0;
  std::unique_ptr<ThreadPool> pool_;
  HostThreads host_;  // set once, before the first product
  std::atomic<bool> host_threads_{true};
};

using ArrayTuple = std::tuple<std::string, int64_t, int64_t>;  // name, rows, bytes of a row

std::vector<ArrayTuple> arrays_of(const LayerForm& form) {
  std::vector<ArrayTuple> result;
  for (const LayerArray& array : layer_arrays(form))
    result.emplace_back(array.name, array.rows, array.row_bytes);
  return result;
}

std::tuple<std::string, std::vector<RotationTuple>> new_form(const std::string& type, int64_t rows,
                                                             int64_t cols,
                                                             const std::string& rotation, int block,
                                                             uint32_t seed, bool fast) {
  const LayerForm form =
      make_form(type, rows, cols, rotation, block, seed, fast ? Effort::fast : Effort::full);
  std::vector<RotationTuple> rotations;
  for (int pass = 0; pass < form.format->passes; ++pass) {
    const Rotation& r = form.rotation[pass];
    rotations.emplace_back(rotation_kind_name(r.kind), r.block, r.seed, r.signs);
  }
  return {std::string(form.format->name), rotations};
}

std::tuple<int64_t, double> encode(const std::string& type, int64_t rows, int64_t cols,
                                   const std::vector<RotationTuple>& rotations,
                                   const MatrixTuple& weights, bool fast, bool shape_gain) {
  const LayerForm form = form_of(type, rows, cols, rotations);
  const MatrixView matrix = view_of(weights);
  const EncodeOptions options = {fast ? Effort::fast : Effort::full,
                                 shape_gain ? ScaleRule::shape_gain : ScaleRule::search};
  int64_t handle = 0;
  double nmse = 0;
  run_interruptible([&] {
    Layers::all().with_pool([&](ThreadPool& pool) {
      handle = Layers::all().add(LinearOperator::encode(form, matrix, options, pool, &nmse));
    });
  });
  return {handle, nmse};
}

int64_t restore(const std::string& type, int64_t rows, int64_t cols,
                const std::vector<RotationTuple>& rotations,
                const std::vector<std::tuple<uint64_t, uint64_t>>& arrays) {
  const LayerForm form = form_of(type, rows, cols, rotations);
  std::vector<std::span<const std::byte>> spans;
  for (const auto& [address, bytes] : arrays)
    spans.emplace_back(reinterpret_cast<const std::byte*>(address), bytes);
  const nb::gil_scoped_release release;
  return Layers::all().add(LinearOperator::restore(form, spans));
}

// Copies the stored arrays to memory of their sizes.
void store(int64_t handle, const std::vector<uint64_t>& addresses) {
  const nb::gil_scoped_release release;
  const std::vector<std::vector<std::byte>> arrays = Layers::all().find(handle)->arrays();
  if (arrays.size() != addresses.size()) throw Error(ErrorCode::usage, "arrays", "wrong number");
  for (size_t i = 0; i < arrays.size(); ++i)
    std::copy(arrays[i].begin(), arrays[i].end(), reinterpret_cast<std::byte*>(addresses[i]));
}

void multiply(int64_t handle, const MatrixTuple& x, uint64_t y, int64_t y_stride, bool exact) {
  const MatrixView view = view_of(x);
  const nb::gil_scoped_release release;
  const auto layer = Layers::all().find(handle);
  Layers::all().with_threads([&](RunThreads run) {
    layer->multiply(view, reinterpret_cast<void*>(y), y_stride, exact, run);
  });
}

void decode(int64_t handle, uint64_t out) {
  const nb::gil_scoped_release release;
  const auto layer = Layers::all().find(handle);
  layer->decode(0, layer->form().rows, reinterpret_cast<float*>(out));
}

}  // namespace

void bind_operators(nb::module_& module) {
  module.def("layer_form", &new_form);
  module.def("layer_arrays", [](const std::string& type, int64_t rows, int64_t cols,
                                const std::vector<RotationTuple>& rotations) {
    return arrays_of(form_of(type, rows, cols, rotations));
  });
  module.def("layer_encode", &encode);
  module.def("layer_restore", &restore);
  module.def("layer_store", &store);
  module.def("layer_multiply", &multiply);
  module.def("layer_decode", &decode);
  module.def("layer_bytes", [](int64_t handle) { return Layers::all().find(handle)->bytes(); });
  module.def("layer_free", [](int64_t handle) { Layers::all().remove(handle); });
  module.def("layer_threads", [](int threads) { Layers::all().set_threads(threads); });
  module.def("layer_host_threads", [](uint64_t parallel, uint64_t thread, uint64_t threads) {
    Layers::all().set_host(HostThreads(parallel, thread, threads));
  });
}

}  // namespace walsh::python
