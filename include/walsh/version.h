// Version of the library and of the file format that it writes.
#pragma once

namespace walsh {

inline constexpr const char* kVersion = "0.1.0";
// Readers refuse files whose format version is newer than this.
inline constexpr int kFileFormatVersion = 1;

}  // namespace walsh
