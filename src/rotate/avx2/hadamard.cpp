#include "rotate/hadamard.h"

#define WALSH_LANES 8
#include "rotate/hadamard_impl.h"

namespace walsh::detail {

void hadamard_avx2(float* x, int n) {
  transform(x, n);
}

}  // namespace walsh::detail
