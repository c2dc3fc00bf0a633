// Declares the inner loops of machine_probe.h, one set per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace walsh {

// Reads `count` aligned 64-byte lines, and returns a value that depends on all of them.
using ReadLines = uint64_t(const uint64_t* lines, int64_t count);
// Runs `rounds` rounds of int8 multiply-adds, stores a value that depends on all of them in `sink`,
// and returns the number of multiply-adds.
using MultiplyAdd = int64_t(int64_t rounds, int32_t* sink);

namespace ref {
ReadLines read_lines;
MultiplyAdd multiply_add;
}  // namespace ref

namespace avx2 {
ReadLines read_lines;
MultiplyAdd multiply_add;
}  // namespace avx2

namespace avx512 {
ReadLines read_lines;
MultiplyAdd multiply_add;
}  // namespace avx512

namespace amx {
MultiplyAdd multiply_add;
}  // namespace amx

}  // namespace walsh
