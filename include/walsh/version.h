// Version of the library and of the file format that it writes.
#pragma once

namespace walsh {

inline constexpr const char* kVersion = "0.2.0";
// Readers refuse files whose format version is newer than this. Version 2 is written only for
// models with a folded rotation or rotated outputs, version 1 for all others.
inline constexpr int kFileFormatVersion = 3;

}  // namespace walsh
