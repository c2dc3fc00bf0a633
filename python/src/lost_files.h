// Makes a mapped file that is cut short while it is read an error of the call, not the end of
// Python.
#pragma once

#include <string>

namespace walsh::python {

// From now on what cannot be read of a mapped file reads as zeros, and its file counts as lost.
void survive_lost_files();

// Throws io if a file at `path`, or in the folder of this name, is lost.
void throw_if_lost(const std::string& path);

// Runs body(), whose result counts only if no file at `path` was lost meanwhile.
template <typename Body>
void reading_files(const std::string& path, const Body& body) {
  survive_lost_files();
  try {
    body();
  } catch (...) {  // the zeros may be its cause
    throw_if_lost(path);
    throw;
  }
  throw_if_lost(path);
}

}  // namespace walsh::python
