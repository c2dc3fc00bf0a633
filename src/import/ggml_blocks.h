// Dequantizes the blocks of ggml's element types, as GGUF files of other programs contain them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace walsh {

// Returns false for types that hold no weights or that walsh cannot decode (I8, Q8_1, ...).
bool can_decode_ggml(uint32_t type);

// Dequantizes whole blocks of a type that can_decode_ggml accepts to out[blocks * block];
// ggml_type_info has the sizes. The values equal ggml's own conversion bit for bit. Infinities and
// NaN in the blocks are passed on.
void decode_ggml(uint32_t type, std::span<const std::byte> blocks, float* out);

}  // namespace walsh
