// Temporary files and folders: their names, and what is left of those whose process was killed.
#pragma once

#include <string>

#include "io/descriptor.h"

namespace walsh {

// What ends like this belongs to a running process or is a leftover of a killed one. The next run
// that writes to the same path removes the leftovers.
inline constexpr const char* kTemporarySuffix = ".walsh-tmp";

namespace detail {

// A name beside `path` that this process has not used yet: "PATH.<pid>-<n>.walsh-tmp".
std::string temporary_name(const std::string& path);

// Marks the open temporary file or folder `fd` as one of a running process, for as long as this
// descriptor or a copy of it is open (flock(2)). False if another process took it for a leftover
// in the meantime: then it has lost its name, and a new one has to be made. True, too, where the
// file system has no locks; there nobody removes leftovers.
bool claim_temporary(int fd);

// Deletes the temporaries of `path` that no running process claims. Never throws: what cannot be
// deleted stays.
void remove_leftovers(const std::string& path) noexcept;

}  // namespace detail
}  // namespace walsh
