// This is the one table of the kernels that compute with stored weights: which there are, on which
// device, and what a user is told where one is missing. The rooms say which formats a kernel knows
// (Codec::has_kernel). Refusals of models, `walsh formats --kernels` and notes of flags that would
// change nothing are made from both.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/device.h"
#include "codec/codec.h"

namespace walsh {

// --rotate weights rotates back codes of at most this many bits.
inline constexpr int kMostWeightSideBits = 4;

struct KernelRow {
  Kernel kernel;
  std::string_view name;     // as `walsh formats --kernels` calls it
  bool gpu;                  // the device
  std::string_view what;     // what it does, for listings
  std::string_view refusal;  // "{}" is the format's name; empty where something else does the work
};
std::span<const KernelRow> all_kernels();

// Returns whether a kernel computes with tensors of a format.
bool has_kernel(const Format& format, Kernel kernel);

// Returns why a kernel cannot be used with a format; empty if it can.
std::string why_not(Kernel kernel, const Format& format);
// Returns why no kernel on `device` computes with tensors of a format, whatever their rotation;
// empty if one does.
std::string why_not(const Device& device, const Format& format);

}  // namespace walsh
