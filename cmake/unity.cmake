# With WALSH_UNITY several sources of a target are compiled as one, which takes less than half the
# time for all of them. tools/unity_groups.py says which can stand together.
if(WALSH_UNITY STREQUAL "AUTO" AND NOT CMAKE_BUILD_TYPE STREQUAL "Release")
  set(WALSH_UNITY OFF)
endif()
if(WALSH_UNITY)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(NOT Python3_FOUND)
    message(STATUS "Without Python 3 every source is compiled by itself")
    set(WALSH_UNITY OFF)
  endif()
endif()
set(WALSH_UNITY_EXCEPT "" CACHE STRING "Targets whose sources are compiled by themselves")
set(WALSH_UNITY_TOKENS 12000)  # about 1,500 lines

# Sets `result` to groups of sources that can stand together, as text with a group in each line.
function(walsh_unity_groups result)
  set(tool ${PROJECT_SOURCE_DIR}/tools/unity_groups.py)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${tool} ${WALSH_UNITY_TOKENS} ${ARGN}
                  OUTPUT_VARIABLE groups COMMAND_ERROR_IS_FATAL ANY)
  # A source that changes may no longer fit into its group.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tool} ${ARGN})
  string(REGEX MATCHALL "[^\n]+" groups "${groups}")
  set(${result} ${groups} PARENT_SCOPE)
endfunction()

# walsh_unite(TARGET) compiles the sources that TARGET has by now in groups. CMake leaves those
# alone that have flags of their own, as for an instruction set.
function(walsh_unite target)
  if(NOT WALSH_UNITY OR "${target}" IN_LIST WALSH_UNITY_EXCEPT)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "^${PROJECT_SOURCE_DIR}/.*\\.cpp$")
  walsh_unity_groups(groups ${sources})
  set(number 0)
  foreach(group ${groups})
    separate_arguments(group)
    math(EXPR number "${number} + 1")
    set_source_files_properties(${group} PROPERTIES UNITY_GROUP ${number})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # It warns of what headers must not do: these are none.
    target_compile_options(${target}
                           PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>")
  endif()
endfunction()

# walsh_unite_kernels(RESULT NAME SOURCE...) does the same for GPU code of a layer that only has to
# compile. CMake has no such property for it: RESULT becomes sources that include the groups.
function(walsh_unite_kernels result name)
  set(files ${ARGN})
  if(WALSH_UNITY AND WALSH_CUDA_QUICK AND NOT "walsh_${name}" IN_LIST WALSH_UNITY_EXCEPT)
    walsh_unity_groups(groups ${files})
    set(number 0)
    foreach(group ${groups})
      separate_arguments(group)
      list(REMOVE_ITEM files ${group})
      list(TRANSFORM group REPLACE "(.+)" "#include \"\\1\"\n")
      string(JOIN "" text ${group})
      math(EXPR number "${number} + 1")
      set(file ${PROJECT_BINARY_DIR}/cuda_kernels/${name}_${number}.cu)
      file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
      list(APPEND files ${file})
    endforeach()
  endif()
  set(${result} ${files} PARENT_SCOPE)
endfunction()
