#include "kernels/cuda/gemm/blas.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nvtx3/nvToolsExtMemCudaRt.h>

#include <algorithm>
#include <compare>
#include <cstdlib>
#include <map>
#include <vector>

#include "base/cuda/counted_memory.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};

// Holds the functions of the library that are used, under names of their own.
struct Library {
  void* handle = nullptr;
  std::string error;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;

  Library() {
    open();
    if (handle == nullptr) return;
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(status_string, "cublasLtGetStatusString");
    find(matmul, "cublasLtMatmul");
    find(get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(desc_create, "cublasLtMatmulDescCreate");
    find(desc_destroy, "cublasLtMatmulDescDestroy");
    find(desc_set, "cublasLtMatmulDescSetAttribute");
    find(layout_create, "cublasLtMatrixLayoutCreate");
    find(layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(preference_create, "cublasLtMatmulPreferenceCreate");
    find(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
  }

  // Tries the loader's search path, then the toolkit that the environment names.
  void open() {
    for (const char* name : kNames) {
      handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle != nullptr) return;
      if (error.empty()) error = dlerror();
    }
    for (const char* variable : {"CUDA_PATH", "CUDA_HOME"}) {
      const char* root = std::getenv(variable);
      for (const char* name : kNames) {
        if (root == nullptr) break;
        handle = dlopen(fmt::format("{}/lib64/{}", root, name).c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle != nullptr) return;
      }
    }
  }

  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr) error = fmt::format("it has no {}", name);
    if (function == nullptr) handle = nullptr;  // The library stays mapped, but is not used.
  }
};

const Library& library() {
  // It is loaded once and never unloaded, because its kernels may be in flight.
  static const Library instance;
  return instance;
}

void check_status(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const ErrorCode code =
      status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::limit : ErrorCode::internal;
  throw Error(code, fmt::format("cuBLASLt {}", what), library().status_string(status));
}

cudaDataType_t data_type(DType type) {
  return type == DType::f32 ? CUDA_R_32F : type == DType::f16 ? CUDA_R_16F : CUDA_R_16BF;
}

// Returns the largest power of two up to 256 that divides an address. The choice of algorithm
// depends on it.
uint32_t alignment(const void* p) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(p) | 256;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

struct Key {
  DType type;
  bool bias, add;
  uint32_t align_w, align_x, align_y;
  int64_t rows, cols, m, ldx, ldy;
  bool moments = false;  // If true, cols is the number of vectors.
  auto operator<=>(const Key&) const = default;
};

Key key_of(const BlasMatmul& p) {
  return {p.type,
          p.bias != nullptr,
          p.add,
          alignment(p.w),
          alignment(p.x),
          alignment(p.y),
          p.rows,
          p.cols,
          p.m,
          p.ldx,
          p.ldy};
}

Key key_of(const BlasMoments& p) {
  const uint32_t align = alignment(p.x);
  return {DType::bf16, false, true,    align, align,   alignment(p.sums),
          p.width,     p.m,   p.width, p.ldx, p.width, true};
}

template <typename T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, cublasStatus_t (*)(T)>;

// Holds a product of one shape, ready to run. The library is column-major: y^T = w^T' x with y^T
// the [rows, m] matrix, w the transposed [cols, rows] and x [cols, m].
struct Plan {
  Owned<cublasLtMatmulDesc_t> desc{nullptr, library().desc_destroy};
  Owned<cublasLtMatrixLayout_t> w{nullptr, library().layout_destroy};
  Owned<cublasLtMatrixLayout_t> x{nullptr, library().layout_destroy};
  Owned<cublasLtMatrixLayout_t> y{nullptr, library().layout_destroy};
  cublasLtMatmulAlgo_t algo{};

  explicit Plan(const BlasMatmul& p) {
    make_description(CUBLASLT_MATMUL_DESC_TRANSA);
    if (p.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    }
    make_layout(w, data_type(p.type), p.cols, p.rows, p.cols);
    make_layout(x, data_type(p.type), p.cols, p.m, p.ldx);
    make_layout(y, CUDA_R_32F, p.rows, p.m, p.ldy);
  }

  // Plans the moments, which are x^T, [width, m] here, times its transpose.
  explicit Plan(const BlasMoments& p) {
    make_description(CUBLASLT_MATMUL_DESC_TRANSB);
    make_layout(w, CUDA_R_16BF, p.width, p.m, p.ldx);
    make_layout(x, CUDA_R_16BF, p.width, p.m, p.ldx);
    make_layout(y, CUDA_R_32F, p.width, p.width, p.width);
  }

  void make_description(cublasLtMatmulDescAttributes_t transposed) {
    cublasLtMatmulDesc_t raw = nullptr;
    check_status(library().desc_create(&raw, CUBLAS_COMPUTE_32F, CUDA_R_32F), "product");
    desc.reset(raw);
    set(transposed, cublasOperation_t{CUBLAS_OP_T});
  }

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check_status(library().desc_set(desc.get(), attribute, &value, sizeof value), "product");
  }

  static void make_layout(Owned<cublasLtMatrixLayout_t>& layout, cudaDataType_t type, int64_t rows,
                          int64_t cols, int64_t ld) {
    cublasLtMatrixLayout_t raw = nullptr;
    check_status(library().layout_create(&raw, type, static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(cols), ld),
                 "layout");
    layout.reset(raw);
  }

  void choose_algorithm(cublasLtHandle_t handle, const Key& key) {
    const Library& lib = library();
    cublasLtMatmulPreference_t raw = nullptr;
    check_status(lib.preference_create(&raw), "preference");
    const Owned<cublasLtMatmulPreference_t> preference(raw, lib.preference_destroy);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check_status(lib.preference_set(raw, attribute, &value, sizeof value), "preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Blas::kWorkspaceBytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_w);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_x);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_y);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_y);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status = lib.get_heuristic(handle, desc.get(), w.get(), x.get(), y.get(),
                                                    y.get(), raw, 1, &result, &found);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
      throw Error(
          ErrorCode::internal, "cuBLASLt",
          fmt::format("no algorithm for a {} product of {} x {} with {} vectors: {}",
                      dtype_name(key.type), key.rows, key.cols, key.m, lib.status_string(status)));
    }
    algo = result.algo;
  }
};

// Tells compute-sanitizer that a product's sums are written, because its initcheck does not see the
// stores of the library's kernels. Without such a tool this costs the test of a pointer.
void mark_written(float* y, int64_t rows, int64_t m, int64_t ldy, Stream stream) {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("walsh");
  const bool whole = ldy == rows;
  for (int64_t t = 0; t < (whole ? 1 : m); ++t) {
    const nvtxMemVirtualRangeDesc_t range = {
        static_cast<size_t>(whole ? m * rows : rows) * sizeof(float), y + t * ldy};
    nvtxMemMarkInitializedBatch_t batch{};
    batch.extCompatID = NVTX_EXT_COMPATID_MEM;
    batch.structSize = sizeof batch;
    batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    batch.regionDescCount = 1;
    batch.regionDescElementSize = sizeof range;
    batch.regionDescElements = &range;
    nvtxMemCudaMarkInitialized(domain, stream, 0, &batch);
  }
}

// Prompts come in many lengths; at this number all plans are dropped.
constexpr size_t kMostPlans = 4096;

}  // namespace

struct Blas::Impl {
  cublasLtHandle_t handle = nullptr;
  Buffer workspace{kWorkspaceBytes};
  std::map<Key, Plan> plans;

  // If memory is only counted, there need not be a device.
  Impl() {
    if (CountedMemory::current() == nullptr) check_status(library().create(&handle), "start");
  }
  ~Impl() {
    if (handle != nullptr) library().destroy(handle);
  }

  template <typename Product>
  Plan& plan_of(const Product& p) {
    const Key key = key_of(p);
    const auto found = plans.find(key);
    if (found != plans.end()) return found->second;
    if (plans.size() >= kMostPlans) plans.clear();
    Plan plan(p);
    plan.choose_algorithm(handle, key);
    return plans.emplace(key, std::move(plan)).first->second;
  }

  // Computes y (+)= w x.
  void run(const Plan& plan, const void* w, const void* x, float* y, bool add,
           Stream stream) const {
    const float one = 1, beta = add ? 1.0f : 0.0f;
    check_status(library().matmul(handle, plan.desc.get(), &one, w, plan.w.get(), x, plan.x.get(),
                                  &beta, y, plan.y.get(), y, plan.y.get(), &plan.algo,
                                  workspace.as(), workspace.bytes(), stream),
                 "product");
  }
};

std::string Blas::unavailable_reason() {
  const Library& lib = library();
  if (lib.handle != nullptr) return {};
  return fmt::format("{} (of the CUDA toolkit) cannot be used: {}", kNames[0], lib.error);
}

Blas::Blas() {
  const std::string reason = unavailable_reason();
  if (!reason.empty()) throw Error(ErrorCode::io, "cuBLASLt", reason);
  impl_ = std::make_unique<Impl>();
}

Blas::~Blas() = default;
Blas::Blas(Blas&&) noexcept = default;
Blas& Blas::operator=(Blas&&) noexcept = default;

void Blas::multiply(const BlasMatmul& p, Stream stream) {
  if (p.m == 0 || p.rows == 0) return;
  Plan& plan = impl_->plan_of(p);
  if (p.bias != nullptr) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  impl_->run(plan, p.w, p.x, p.y, p.add, stream);
  mark_written(p.y, p.rows, p.m, p.ldy, stream);
}

void Blas::add(const BlasMoments& p, Stream stream) {
  if (p.m == 0 || p.width == 0) return;
  impl_->run(impl_->plan_of(p), p.x, p.x, p.sums, true, stream);
}

}  // namespace walsh::cuda
