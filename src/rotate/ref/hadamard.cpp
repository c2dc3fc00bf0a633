#include "rotate/hadamard.h"

#define WALSH_LANES 4
#include "rotate/hadamard_impl.h"

namespace walsh::detail {

void hadamard_ref(float* x, int n) {
  transform(x, n);
}

}  // namespace walsh::detail
