// Copies vectors to the device and back, for tests.
#pragma once

#include <vector>

#include "base/cuda/device.h"

namespace walsh::cuda::test {

template <typename T>
Buffer to_device(const std::vector<T>& host) {
  Buffer buffer(host.size() * sizeof(T));
  copy_to_device(buffer.as(), host.data(), buffer.bytes(), nullptr);
  synchronize(nullptr);
  return buffer;
}

template <typename T>
std::vector<T> to_host(const Buffer& buffer) {
  std::vector<T> host(buffer.bytes() / sizeof(T));
  copy_to_host(host.data(), buffer.as(), host.size() * sizeof(T), nullptr);
  synchronize(nullptr);
  return host;
}

}  // namespace walsh::cuda::test
