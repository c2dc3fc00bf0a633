#include "rotate/hadamard.h"

#define WALSH_LANES 16
#include "rotate/hadamard_impl.h"

namespace walsh::detail {

void hadamard_avx512(float* x, int n) {
  transform(x, n);
}

}  // namespace walsh::detail
