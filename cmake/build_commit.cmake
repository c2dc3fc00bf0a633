# Writes OUTPUT, a source file with the commit of SOURCE, if it has changed, so that a build without
# a new commit compiles nothing. COMMIT, if set, overrides git.
if(NOT COMMIT)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                  RESULT_VARIABLE failed)
  if(failed OR NOT COMMIT)
    set(COMMIT "unknown")
  endif()
endif()
set(text "namespace walsh::cli::detail {\nextern const char* const kBuildCommit;\n")
string(APPEND text "const char* const kBuildCommit = \"${COMMIT}\";\n")
string(APPEND text "}  // namespace walsh::cli::detail\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} known)
endif()
if(NOT "${known}" STREQUAL "${text}")
  file(WRITE ${OUTPUT} "${text}")
endif()
