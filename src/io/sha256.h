// Computes SHA-256 (FIPS 180-4), for names from which nobody can find out what they were made of.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace walsh {

using Sha256 = std::array<std::byte, 32>;

Sha256 sha256(std::string_view bytes);
// Returns 64 lower-case hex digits.
std::string hex(const Sha256& digest);

}  // namespace walsh
