// Holds the one table of the kernels that compute with stored weights: which kernels exist, on
// which device, and what a user is told if one is missing. The rooms say which formats a kernel
// knows (Codec::has_kernel). Refusals of models, `walsh formats --kernels` and notes about flags
// without effect follow from both.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/device.h"
#include "codec/codec.h"

namespace walsh {

// --rotate weights can rotate back codes of at most this many bits.
inline constexpr int kMostWeightSideBits = 4;

struct KernelRow {
  Kernel kernel;
  std::string_view name;  // It is the name in `walsh formats --kernels`.
  bool gpu;               // If true, it runs on GPUs.
  std::string_view what;  // Listings say with it what the kernel does.
  // In this text "{}" is the format's name; it is empty if something else does the work.
  std::string_view refusal;
};
std::span<const KernelRow> all_kernels();

// Returns whether a kernel computes with tensors of a format.
bool has_kernel(const Format& format, Kernel kernel);

// Returns why a kernel cannot be used with a format; empty if it can.
std::string why_not(Kernel kernel, const Format& format);
// Returns why no kernel on `device` computes with tensors of a format, whatever their rotation is;
// empty if one does.
std::string why_not(const Device& device, const Format& format);

}  // namespace walsh
