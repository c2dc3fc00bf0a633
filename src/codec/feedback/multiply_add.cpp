#include "codec/feedback/multiply_add.h"

#include "base/cpu.h"

namespace walsh::detail {

MultiplyAdd multiply_add() {
  switch (current_isa()) {
    case Isa::ref:
      return multiply_add_ref;
    case Isa::avx2:
      return multiply_add_avx2;
    default:
      return multiply_add_avx512;
  }
}

}  // namespace walsh::detail
