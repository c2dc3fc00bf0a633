// Chooses the instruction set at run time.
#pragma once

#include <string_view>
#include <vector>

namespace walsh {

// Names the levels of instruction sets. avx2 means AVX2, FMA and F16C. avx512 means F, BW, VL, DQ
// and VNNI of AVX-512. avx512vbmi adds VBMI (Ice Lake, Sapphire Rapids, Zen 4 and later). amx adds
// the int8 matrix unit (Sapphire Rapids and later), if the system lets this process use it.
enum class Isa { ref, avx2, avx512, avx512vbmi, amx };

std::string_view isa_name(Isa isa);

// Returns whether this processor and its operating system can run code of a level.
bool isa_supported(Isa isa);

// Returns every level that this machine can run, lowest first; ref is always among them.
std::vector<Isa> supported_isas();

// Returns the level to use. That is the forced one (force_isa), else what the environment variable
// WALSH_ISA says, else the best that is supported. Throws usage if WALSH_ISA names an unknown or
// unsupported level.
Isa current_isa();

// Forces a level by name ("ref", "avx2", "avx512", "avx512vbmi", "amx"); an empty text undoes it.
// Throws usage for an unknown or unsupported name.
void force_isa(std::string_view name);

}  // namespace walsh
