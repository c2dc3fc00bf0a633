// Selects the kernel of a program, by the codes of its products and what else its phases do.
#include <algorithm>

#include "kernels/cuda/persistent/planned_phase.h"
#include "walsh/error.h"

namespace walsh::cuda {

bool PersistentProgram::Codes::wide() const {
  return std::any_of(kinds.begin(), kinds.end(),
                     [](const auto& kind) { return kind.second == 32; });
}

bool PersistentProgram::Codes::trellis() const {
  return std::any_of(kinds.begin(), kinds.end(),
                     [](const auto& kind) { return is_trellis(kind.first); });
}

bool PersistentProgram::Codes::known() const {
  if (rows > 1 && (several() || trellis() || wide() || experts || mixers || coded != 0))
    return false;
  if (coded != 0 && (trellis() || mixers || ((experts || several()) && wide()))) return false;
  return !(trellis() && (wide() || experts || mixers)) && !(mixers && wide());
}

ProgramMemory PersistentProgram::Codes::memory() const {
  if (several()) return program_memory_of_several(wide());
  return program_memory(code_vectors(kinds.begin()->first), kinds.begin()->second, rows, deep);
}

namespace {

// Returns the kernel of programs that have this one code, with this number of columns summed
// together.
template <typename Decoder, int Flush>
PersistentKernel kernel_of_one_code(bool experts, bool mixers) {
  if constexpr (kIsTrellis<Decoder>) {
    return persistent_kernel<OneCode<Decoder, Flush>, false, false>();
  } else {
    if constexpr (Flush == 128) {
      if (mixers) {
        return experts ? persistent_kernel<OneCode<Decoder, Flush>, true, true>()
                       : persistent_kernel<OneCode<Decoder, Flush>, false, true>();
      }
    }
    return experts ? persistent_kernel<OneCode<Decoder, Flush>, true, false>()
                   : persistent_kernel<OneCode<Decoder, Flush>, false, false>();
  }
}

// Returns the kernel for either number of columns that are summed together.
template <typename Decoder>
PersistentKernel kernel_of_one_code(int flush, bool experts, bool mixers) {
  if constexpr (kIsTrellis<Decoder>) {
    return kernel_of_one_code<Decoder, 128>(experts, mixers);
  } else if constexpr (kScalarBits<Decoder> != 0) {
    constexpr DecoderKind kKind = scalar_decoder(kScalarBits<Decoder>);
    if constexpr (has_flush(kKind, 32)) {
      if (flush == 32) return kernel_of_one_code<Decoder, 32>(experts, mixers);
    }
    if constexpr (has_flush(kKind, 128)) return kernel_of_one_code<Decoder, 128>(experts, mixers);
  }
  throw Error(ErrorCode::internal, "persistent kernel", "has no kernel for the code");
}

}  // namespace

PersistentKernel PersistentProgram::Codes::kernel() const {
  if (rows > 1) return rows_kernel();
  if (coded != 0) return coded_kernel();
  if (several() && mixers) {
    return experts ? persistent_kernel<NarrowCodes, true, true>()
                   : persistent_kernel<NarrowCodes, false, true>();
  }
  if (several() && experts) {
    return wide() ? persistent_kernel<WideCodes, true, false>()
                  : persistent_kernel<NarrowCodes, true, false>();
  }
  if (several() && trellis()) return persistent_kernel<TrellisCodes, false, false>();
  if (several()) {
    return wide() ? persistent_kernel<WideCodes, false, false>()
                  : persistent_kernel<NarrowCodes, false, false>();
  }
  const auto& [decoder, flush] = *kinds.begin();
  return with_decoder(decoder, [&]<typename Decoder>() {
    return kernel_of_one_code<Decoder>(flush, experts, mixers);
  });
}

template <int Dim>
PersistentKernel PersistentProgram::Codes::coded_kernel_of() const {
  if (several()) {
    return experts ? coded_persistent_kernel<NarrowCodes, true, Dim>()
                   : coded_persistent_kernel<NarrowCodes, false, Dim>();
  }
  const auto& [kind, flush] = *kinds.begin();
  PersistentKernel kernel = nullptr;
  const auto one = [&]<int Bits, int Flush>() {
    if (kind != scalar_decoder(Bits) || flush != Flush) return;
    if constexpr (Flush == 128) {
      if (experts) {
        kernel = coded_persistent_kernel<OneCode<ScalarDecoder<Bits>, Flush>, true, Dim>();
        return;
      }
    }
    kernel = coded_persistent_kernel<OneCode<ScalarDecoder<Bits>, Flush>, false, Dim>();
  };
  one.template operator()<2, 128>();
  one.template operator()<3, 128>();
  one.template operator()<4, 128>();
  one.template operator()<3, 32>();
  one.template operator()<4, 32>();
  one.template operator()<8, 32>();
  if (kernel == nullptr)
    throw Error(ErrorCode::internal, "persistent kernel", "has no kernel for the code");
  return kernel;
}

namespace {

template <typename Code>
PersistentKernel kernel_of_rows(int rows, bool deep) {
  if (rows == 4) {
    return deep ? rows_persistent_kernel<Code, 4, true>()
                : rows_persistent_kernel<Code, 4, false>();
  }
  return deep ? rows_persistent_kernel<Code, 2, true>() : rows_persistent_kernel<Code, 2, false>();
}

}  // namespace

PersistentKernel PersistentProgram::Codes::rows_kernel() const {
  const DecoderKind kind = kinds.begin()->first;
  if (kind == scalar_decoder(2)) return kernel_of_rows<OneCode<ScalarDecoder<2>, 128>>(rows, deep);
  if (kind == scalar_decoder(3)) return kernel_of_rows<OneCode<ScalarDecoder<3>, 128>>(rows, deep);
  if (kind == scalar_decoder(4)) return kernel_of_rows<OneCode<ScalarDecoder<4>, 128>>(rows, deep);
  throw Error(ErrorCode::internal, "persistent kernel", "has no kernel for the code");
}

PersistentKernel PersistentProgram::Codes::coded_kernel() const {
  return coded == 64 ? coded_kernel_of<64>() : coded_kernel_of<128>();
}

}  // namespace walsh::cuda
