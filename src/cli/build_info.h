// Gives version, build and machine information.
#pragma once

#include <string>

namespace walsh::cli {

// Returns one line such as "walsh 0.2.0 (file format 3; instruction sets: ...)".
std::string version_text();
// Returns a text such as "16 cores, avx2", which names the cores that run without -t. With
// hyperthreads it is "8 cores of 16 CPUs, avx2".
std::string processor_text();
// Returns version_text() with a line each for commit, compiler, processor, CUDA and limits.
std::string verbose_version_text();

namespace detail {

extern const char* const kBuildCommit;  // cmake/build_commit.cmake generates it

}  // namespace detail
}  // namespace walsh::cli
