#include <array>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "kernels/cuda/launch.h"
#include "walsh/error.h"

namespace walsh::cuda {

const DeviceInfo& current_device() {
  static constexpr int kMaxDevices = 64;
  static std::array<std::once_flag, kMaxDevices> asked;
  static std::array<DeviceInfo, kMaxDevices> known;
  int index = 0;
  check(cudaGetDevice(&index), "device");
  if (index >= kMaxDevices) throw Error(ErrorCode::limit, "CUDA device", "more than 64 devices");
  const auto slot = static_cast<size_t>(index);
  std::call_once(asked[slot], [&] { known[slot] = use_device(index); });
  return known[slot];
}

namespace {

// Holds the attributes of a launch, in the form that the runtime takes.
struct Request {
  std::array<cudaLaunchAttribute, 3> attributes{};
  cudaLaunchConfig_t config{};

  explicit Request(const LaunchShape& shape, Stream stream) {
    config.gridDim = shape.grid;
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shape.shared;
    config.stream = stream;
    config.attrs = attributes.data();
    if (current_device().major < 9) return;
    add(cudaLaunchAttributeProgrammaticStreamSerialization).programmaticStreamSerializationAllowed =
        1;
    if (shape.cluster > 1)
      add(cudaLaunchAttributeClusterDimension).clusterDim = {shape.cluster, 1, 1};
    if (shape.cooperative) add(cudaLaunchAttributeCooperative).cooperative = 1;
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

 private:
  cudaLaunchAttributeValue& add(cudaLaunchAttributeID id) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = id;
    return attribute.val;
  }
};

// Remembers what this thread has set already, because setting it again takes nearly as long as a
// launch.
void reserve_shared(std::string_view name, const void* kernel, const LaunchShape& shape) {
  thread_local std::set<std::tuple<const void*, int, bool>> reserved;
  const bool dynamic = shape.shared > 0;
  const std::tuple asked(kernel, current_device().index, dynamic);
  if (reserved.contains(asked)) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        name);
  if (dynamic) allow_most_shared_memory(kernel, name);
  reserved.insert(asked);
}

}  // namespace

int detail::most_clusters(std::string_view name, const void* kernel, const LaunchShape& shape) {
  reserve_shared(name, kernel, shape);
  const Request request(shape, nullptr);
  int count = 0;
  check(cudaOccupancyMaxActiveClusters(&count, kernel, &request.config), name);
  return count;
}

bool detail::is_compiled(const void* kernel) {
  thread_local std::map<std::pair<const void*, int>, bool> known;
  const auto [place, is_new] = known.try_emplace({kernel, current_device().index}, false);
  if (is_new) {
    constexpr int kMostOfAnEmptyOne = 64;  // An empty kernel takes at most this many registers.
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kernel), "kernel");
    place->second = attributes.numRegs > kMostOfAnEmptyOne;
  }
  return place->second;
}

void detail::launch(std::string_view name, const void* kernel, const LaunchShape& shape,
                    Stream stream, void** parameters) {
  reserve_shared(name, kernel, shape);
  const Request request(shape, stream);
  check(cudaLaunchKernelExC(&request.config, kernel, parameters), name);
}

}  // namespace walsh::cuda
