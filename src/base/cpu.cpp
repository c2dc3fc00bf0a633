#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <atomic>
#include <cstdlib>
#include <string>

#include "walsh/error.h"

namespace walsh {
namespace {

constexpr Isa kAll[] = {Isa::ref, Isa::avx2, Isa::avx512, Isa::avx512vbmi, Isa::amx};
std::atomic<int> forced{-1};

Isa parse(std::string_view name, const char* where) {
  for (Isa isa : kAll) {
    if (isa_name(isa) != name) continue;
    if (isa_supported(isa)) return isa;
    throw Error(ErrorCode::usage, where,
                "this processor does not support '" + std::string(name) + "'");
  }
  throw Error(ErrorCode::usage, where,
              "unknown instruction set '" + std::string(name) +
                  "', expected ref, avx2, avx512, avx512vbmi or amx");
}

#if defined(__x86_64__)
// Asks CPUID leaf 1 for F16C, because clang 14's __builtin_cpu_supports does not know the name.
bool has_f16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// Returns whether the processor multiplies tiles of int8 and Linux lets this process use them.
// Their registers are so large that the process has to ask first (arch_prctl(2)); the permission
// holds for all threads.
bool has_amx() {
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;  // CPUID leaf 7 has these in EDX.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned eax, ebx, ecx, edx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kTile) == 0 || (edx & kInt8) == 0) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::ref:
      return "ref";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512vbmi:
      return "avx512vbmi";
    case Isa::amx:
      return "amx";
  }
  return "?";
}

bool isa_supported(Isa isa) {
  if (isa == Isa::ref) return true;
#if defined(__x86_64__)
  __builtin_cpu_init();
  static const bool f16c = has_f16c();  // CPUID costs microseconds in a virtual machine.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
  if (isa == Isa::avx2) return avx2;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
  if (isa == Isa::avx512) return avx512;
  const bool vbmi = avx512 && __builtin_cpu_supports("avx512vbmi");
  if (isa == Isa::avx512vbmi) return vbmi;
  static const bool amx = vbmi && has_amx();
  return amx;
#else
  return false;
#endif
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> result;
  for (Isa isa : kAll) {
    if (isa_supported(isa)) result.push_back(isa);
  }
  return result;
}

Isa current_isa() {
  const int f = forced.load();
  if (f >= 0) return static_cast<Isa>(f);
  static const Isa chosen = [] {
    const char* env = std::getenv("WALSH_ISA");
    return env && *env ? parse(env, "WALSH_ISA") : supported_isas().back();
  }();
  return chosen;
}

void force_isa(std::string_view name) {
  forced.store(name.empty() ? -1 : static_cast<int>(parse(name, "--isa")));
}

}  // namespace walsh
