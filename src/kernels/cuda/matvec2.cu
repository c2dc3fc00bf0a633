#include "kernels/cuda/matvec.cuh"

namespace walsh::cuda {

template <>
MatvecKernel matvec_kernel<2>(const MatvecKind& kind) {
  return kind.flush == 32 ? select_kernel<2, 32>(kind) : select_kernel<2, 128>(kind);
}

}  // namespace walsh::cuda
