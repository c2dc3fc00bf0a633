// Names temporary files and folders, and removes those whose process was killed.
#pragma once

#include <string>

#include "io/descriptor.h"

namespace walsh {

// A path with this suffix belongs to a running process or is the leftover of a killed one; the next
// run that writes to the same path removes leftovers.
inline constexpr const char* kTemporarySuffix = ".walsh-tmp";

namespace detail {

// Returns a name beside `path` that this process has not used yet: "PATH.<pid>-<n>.walsh-tmp". Of a
// name that would get too long it has only the beginning.
std::string temporary_name(const std::string& path);

// Marks the open temporary file or folder `fd` as one of a running process for as long as this
// descriptor or a copy of it is open (flock(2)). Returns false if another process mistook it for a
// leftover meanwhile and removed it: then a new one has to be made. Also true where the file system
// has no locks; nobody removes leftovers there.
bool claim_temporary(int fd);

// Deletes the temporaries of `path` that no running process claims. Never throws: files that cannot
// be deleted stay.
void remove_leftovers(const std::string& path) noexcept;

}  // namespace detail
}  // namespace walsh
