// Declares the version of the library and that of the file format which it writes.
#pragma once

namespace walsh {

inline constexpr const char* kVersion = "0.2.0";
// Files are written with this version of the format. Readers refuse files with a newer one.
inline constexpr int kFileFormatVersion = 3;

}  // namespace walsh
