// Run-time choice of the instruction set.
#pragma once

#include <string_view>
#include <vector>

namespace walsh {

// Each level is complete by itself. avx2: AVX2 + FMA + F16C. avx512: F, BW, VL, DQ, VNNI.
// avx512vbmi: avx512 plus VBMI (Ice Lake, Sapphire Rapids, Zen 4 and later). amx: avx512vbmi plus
// the matrix unit for int8 (Sapphire Rapids and later), where the system lets this process use it.
enum class Isa { ref, avx2, avx512, avx512vbmi, amx };

std::string_view isa_name(Isa isa);

// True if this processor and operating system can run code of that level.
bool isa_supported(Isa isa);

// Every level that this machine can run, lowest first; always holds ref.
std::vector<Isa> supported_isas();

// The level to use: the forced one (force_isa), else the environment variable WALSH_ISA, else the
// best supported. Throws usage if WALSH_ISA names an unknown or unsupported level.
Isa current_isa();

// Forces a level by name ("ref", "avx2", "avx512", "avx512vbmi", "amx"); an empty text undoes it.
// Throws usage for an unknown or unsupported name.
void force_isa(std::string_view name);

}  // namespace walsh
