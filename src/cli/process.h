// Sets up descriptors, signals and the end of the process at its start.
#pragma once

namespace walsh::cli {

// Opens closed descriptors 0 to 2 on /dev/null, so that no file gets their numbers. 0 and 1 are
// opened so that reading or writing fails, as with a closed descriptor; 2 swallows messages.
void open_standard_descriptors();

// Broken pipes and the file size limit become errors of write(2) instead of signals. A mapped file
// that was truncated (SIGBUS) ends the program with one line and exit status 5, after removing
// temporary files; other bus errors keep their default effect. So does memory that runs out where
// no exception can leave, with exit status 4.
void handle_process_ends();

}  // namespace walsh::cli
