// Chooses the instruction set at run time.
#pragma once

#include <string_view>
#include <vector>

namespace walsh {

// Each level contains what it needs. avx2: AVX2 + FMA + F16C. avx512: F, BW, VL, DQ, VNNI.
// avx512vbmi: avx512 plus VBMI (Ice Lake, Sapphire Rapids, Zen 4 and later). amx: avx512vbmi plus
// the int8 matrix unit (Sapphire Rapids and later), if the system lets this process use it.
enum class Isa { ref, avx2, avx512, avx512vbmi, amx };

std::string_view isa_name(Isa isa);

// Returns whether this processor and operating system can run code of that level.
bool isa_supported(Isa isa);

// Returns every level that this machine can run, lowest first; ref is always among them.
std::vector<Isa> supported_isas();

// Returns the level to use: the forced one (force_isa), else the environment variable WALSH_ISA,
// else the best supported. Throws usage if WALSH_ISA names an unknown or unsupported level.
Isa current_isa();

// Forces a level by name ("ref", "avx2", "avx512", "avx512vbmi", "amx"); an empty text undoes it.
// Throws usage for an unknown or unsupported name.
void force_isa(std::string_view name);

}  // namespace walsh
