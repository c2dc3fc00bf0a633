#include "codec/kernels.h"

#include <fmt/format.h>

namespace walsh {
namespace {

constexpr KernelRow kKernels[] = {
    {Kernel::cpu_products, "products", false, "inputs in int8 or float32",
     "walsh no longer computes with {}"},
    {Kernel::cpu_lookup, "lookup", false, "products by lookup (--activations lut)",
     "there are no products by lookup for {}"},
    {Kernel::gpu_products, "products", true, "inputs in int8 or f16, rows of an embedding",
     "there are no GPU kernels for {}: use --device cpu"},
    {Kernel::gpu_weight_side, "weight side", true, "--rotate weights",
     "--rotate weights has no kernels for {}: leave it out, or use codes of up to 4 bits"},
    {Kernel::gpu_encoder, "encoder", true, "encoding on the GPU, or its search", ""},
};

}  // namespace

std::span<const KernelRow> all_kernels() {
  return kKernels;
}

bool has_kernel(const Format& format, Kernel kernel) {
  return codec_of(format).has_kernel(format, kernel);
}

std::string why_not(Kernel kernel, const Format& format) {
  if (has_kernel(format, kernel)) return {};
  const KernelRow& row = kKernels[static_cast<size_t>(kernel)];
  return fmt::format(fmt::runtime(row.refusal), format.name);
}

std::string why_not(const Device& device, const Format& format) {
  return why_not(device.cuda ? Kernel::gpu_products : Kernel::cpu_products, format);
}

}  // namespace walsh
