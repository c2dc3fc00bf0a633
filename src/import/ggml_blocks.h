// The blocks of ggml's element types as float32: what a weight of somebody else's GGUF file means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace walsh {

// False for types that hold no weights or whose meaning is not known here (I8, Q8_1, ...).
bool can_decode_ggml(uint32_t type);

// Converts whole blocks of a type that can_decode_ggml to out[blocks * block]; ggml_type_info has
// the sizes. The values are those of ggml's own conversion to the bit. Infinities and NaN that the
// blocks hold are passed on.
void decode_ggml(uint32_t type, std::span<const std::byte> blocks, float* out);

}  // namespace walsh
