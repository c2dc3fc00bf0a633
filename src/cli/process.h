// What the process is given at its start and what the system may do to it, set in order once.
#pragma once

namespace walsh::cli {

// Descriptors 0 to 2 that are closed are opened on /dev/null, so that no file gets them: 0 and 1 in
// a way that reading or writing fails, as it does with a closed descriptor, 2 to take all messages.
void open_standard_descriptors();

// A broken pipe and the limit of a file's size are errors of write(2) instead of signals. A mapped
// file that cannot be read any more (SIGBUS), since somebody has cut it, ends the program with one
// line, exit status 5 and without temporary files; other bus errors end it as before.
void handle_process_signals();

}  // namespace walsh::cli
