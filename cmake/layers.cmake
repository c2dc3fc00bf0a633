# A layer is a folder src/NAME, compiled into an object library that sees all earlier layers, and
# a test executable test_NAME of tests/NAME. Code for an instruction set lives in a sub-folder named
# after it and is compiled with that set's flags; everything else is baseline x86-64.

# The results must not depend on the instruction set, so there is no contraction into FMA and no
# fast math.
set(WALSH_FLAGS -Wall -Wextra -Wpedantic -ffp-contract=off)
if(WALSH_WERROR)
  list(APPEND WALSH_FLAGS -Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Warnings of the optimizer in headers of the standard library and of fmt depend on its level,
    # on precompiled headers and on the compiler's version (GCC bugs 105329 and 105651, for
    # example): they are shown, but do not fail the build.
    list(APPEND WALSH_FLAGS -Wno-error=array-bounds -Wno-error=maybe-uninitialized
         -Wno-error=restrict -Wno-error=stringop-overflow -Wno-error=stringop-overread)
  endif()
endif()
set(WALSH_FALSE_ALARMS "")  # where the same warnings come at every sum of strings
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(WALSH_FALSE_ALARMS -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endif()
set(WALSH_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(WALSH_ISA_FLAGS_avx512 ${WALSH_ISA_FLAGS_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq
    -mavx512vnni -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # GCC bug 105593: its own AVX-512 headers warn
  string(APPEND WALSH_ISA_FLAGS_avx512 ";-Wno-maybe-uninitialized;-Wno-uninitialized")
endif()
set(WALSH_ISA_FLAGS_avx512vbmi ${WALSH_ISA_FLAGS_avx512} -mavx512vbmi)
set(WALSH_ISA_FLAGS_amx ${WALSH_ISA_FLAGS_avx512vbmi} -mamx-tile -mamx-int8)

set(WALSH_LAYERS "")

# A group of targets with equal flags shares precompiled headers. Reading them is up to a fifth of
# what compiling a source costs. A compiler cache keeps no object that a precompiled header went
# into, so there are none where one is used; that build also shows what a source forgets to include.
function(walsh_precompile target group)
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    return()
  endif()
  get_property(first GLOBAL PROPERTY WALSH_PRECOMPILED_${group})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    set_property(GLOBAL PROPERTY WALSH_PRECOMPILED_${group} ${target})
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# JSON says that its sources read or write it. PLAIN says that no test waits for its code, so that a
# build whose purpose is to run the tests (WALSH_UNITY in the preset dev) spends no time on
# optimizing it.
function(walsh_layer name)
  cmake_parse_arguments(ARG "JSON;PLAIN" "" "LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp)
  if(NOT sources)
    return()
  endif()
  # GPU code is in cuda/; no_cuda/ replaces it in builds without the toolkit.
  if(WALSH_HAS_CUDA)
    list(FILTER sources EXCLUDE REGEX "/no_cuda/")
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cu)
    walsh_unite_kernels(kernels ${name} ${kernels})
    list(APPEND sources ${kernels})
    walsh_cuda_kernels(instances ${name})
    list(APPEND sources ${instances})
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/")
  endif()
  foreach(isa avx2 avx512 avx512vbmi amx)
    set(isa_sources ${sources})
    list(FILTER isa_sources INCLUDE REGEX "/${isa}/[^/]*\\.cpp$")
    if(isa_sources)
      set_source_files_properties(${isa_sources} PROPERTIES COMPILE_OPTIONS
                                                            "${WALSH_ISA_FLAGS_${isa}}")
    endif()
  endforeach()
  add_library(walsh_${name} OBJECT ${sources})
  target_compile_options(walsh_${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${WALSH_FLAGS}>")
  if(WALSH_HAS_CUDA)
    walsh_use_cuda(walsh_${name})
  endif()
  target_include_directories(walsh_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src
                                                  ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(walsh_${name} PUBLIC ${ARG_LIBS})
  foreach(upper ${WALSH_LAYERS})
    target_link_libraries(walsh_${name} PUBLIC walsh_${upper})
  endforeach()
  walsh_unite(walsh_${name})
  set(plain "")
  if(ARG_PLAIN AND WALSH_UNITY AND CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    set(plain _plain)
    target_compile_options(walsh_${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-O1>")
  endif()
  if(ARG_JSON)
    walsh_precompile(walsh_${name} layers${plain} <fmt/format.h> <nlohmann/json.hpp>)
  endif()
  set(WALSH_LAYERS ${WALSH_LAYERS} ${name} PARENT_SCOPE)
  if(WALSH_TESTS)
    walsh_test(${name} "${WALSH_LAYERS};${name}")
  endif()
endfunction()

# Makes the page of the server a source of its layer.
function(walsh_embed_page)
  set(folder ${PROJECT_SOURCE_DIR}/src/serve/page)
  set(output ${PROJECT_BINARY_DIR}/page_text.cpp)
  file(GLOB parts CONFIGURE_DEPENDS ${folder}/*)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${folder} -DOUTPUT=${output}
            -P ${PROJECT_SOURCE_DIR}/cmake/embed_page.cmake
    DEPENDS ${parts} ${PROJECT_SOURCE_DIR}/cmake/embed_page.cmake
    VERBATIM)
  target_sources(walsh_serve PRIVATE ${output})
endfunction()

# Builds test_NAME from tests/NAME/*_test.cpp, linked with the objects of `layers`.
function(walsh_test name layers)
  file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/*.cpp)
  if(WALSH_HAS_CUDA)
    file(GLOB gpu_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/cuda/*.cpp)
    list(APPEND tests ${gpu_tests})
  endif()
  if(NOT tests)
    return()
  endif()
  # Only processors with the instruction set can run these.
  foreach(isa avx512vbmi)
    file(GLOB isa_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/${isa}/*.cpp)
    if(isa_tests)
      set_source_files_properties(${isa_tests} PROPERTIES COMPILE_OPTIONS
                                                          "${WALSH_ISA_FLAGS_${isa}}")
      set_source_files_properties(
        ${isa_tests} PROPERTIES INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/tests/${name}
                                SKIP_PRECOMPILE_HEADERS ON)
      list(APPEND tests ${isa_tests})
    endif()
  endforeach()
  # These sources of GPU kernels run on the host (tests/kernels/emulated/device.h).
  file(GLOB emulated CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/emulated/*.cpp
                                       ${PROJECT_SOURCE_DIR}/tests/${name}/*_emulated_test.cpp)
  set_source_files_properties(
    ${emulated} PROPERTIES INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/tests/${name}/emulated
                           COMPILE_OPTIONS -Wno-unknown-pragmas)
  list(FILTER emulated INCLUDE REGEX "/emulated/")
  list(APPEND tests ${emulated})
  find_package(GTest REQUIRED)
  include(GoogleTest)
  add_executable(test_${name} ${tests})
  # Tests use -O1, since they spend little time in their own code and compiling them is slow.
  target_compile_options(test_${name} PRIVATE ${WALSH_FLAGS} ${WALSH_FALSE_ALARMS}
                                              $<$<NOT:$<CONFIG:Debug>>:-O1>)
  walsh_unite(test_${name})
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(
    test_${name} PRIVATE WALSH_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
                         WALSH_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(test_${name} PRIVATE GTest::gmock GTest::gtest_main
                                             nlohmann_json::nlohmann_json)
  foreach(layer ${layers})
    target_link_libraries(test_${name} PRIVATE walsh_${layer})
  endforeach()
  walsh_precompile(test_${name} tests <gmock/gmock.h> <gtest/gtest.h> <fmt/format.h> <filesystem>
                   <fstream> <nlohmann/json.hpp> <thread>)
  set(cost 1)
  if(name MATCHES "^(cli|eval|quantize)$")
    set(cost 10)  # with the longest cases, which are begun first
  endif()
  gtest_discover_tests(test_${name} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 600 COST ${cost})
endfunction()

# Makes the library, the command and the install rules.
function(walsh_finish)
  add_library(walsh STATIC)
  add_library(walsh::walsh ALIAS walsh)
  foreach(layer ${WALSH_LAYERS})
    target_sources(walsh PRIVATE $<TARGET_OBJECTS:walsh_${layer}>)
  endforeach()
  set_target_properties(walsh PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(walsh PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                          $<INSTALL_INTERFACE:include>)
  target_compile_features(walsh PUBLIC cxx_std_20)
  target_link_libraries(walsh PUBLIC Threads::Threads ${WALSH_FMT} PkgConfig::PCRE2
                                     PkgConfig::UTF8PROC PkgConfig::XXHASH
                                     $<LINK_ONLY:PkgConfig::JPEG> $<LINK_ONLY:PkgConfig::PNG>
                                     $<LINK_ONLY:PkgConfig::WEBP>)
  if(WALSH_HAS_CUDA)
    target_link_libraries(walsh PUBLIC ${WALSH_CUDA_LIBRARIES})
  endif()

  # The shared library exports only what include/walsh declares.
  if(WALSH_SHARED)
    add_library(walsh_shared SHARED)
    add_library(walsh::shared ALIAS walsh_shared)
    foreach(layer ${WALSH_LAYERS})
      target_sources(walsh_shared PRIVATE $<TARGET_OBJECTS:walsh_${layer}>)
    endforeach()
    set(symbols ${PROJECT_SOURCE_DIR}/cmake/walsh.map)
    set_target_properties(walsh_shared PROPERTIES
      LINKER_LANGUAGE CXX OUTPUT_NAME walsh EXPORT_NAME shared VERSION ${PROJECT_VERSION}
      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${symbols})
    target_include_directories(walsh_shared PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                   $<INSTALL_INTERFACE:include>)
    target_compile_features(walsh_shared PUBLIC cxx_std_20)
    target_link_options(walsh_shared PRIVATE LINKER:--version-script=${symbols})
    target_link_libraries(walsh_shared PRIVATE Threads::Threads ${WALSH_FMT} PkgConfig::PCRE2
                                               PkgConfig::UTF8PROC PkgConfig::XXHASH
                                               PkgConfig::JPEG PkgConfig::PNG PkgConfig::WEBP
                                               ${WALSH_CUDA_LIBRARIES})
  endif()

  file(GLOB cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.cpp)
  if(cli_sources)
    add_executable(walsh_command ${cli_sources})
    set_target_properties(walsh_command PROPERTIES OUTPUT_NAME walsh)
    walsh_unite(walsh_command)
    # The command's code is flags and reports: the time to compile them is most of what they cost
    # while developing.
    target_compile_options(walsh_command PRIVATE ${WALSH_FLAGS} ${WALSH_FALSE_ALARMS}
                                                 $<$<CONFIG:RelWithDebInfo>:-O1>)
    target_include_directories(walsh_command PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(walsh_command PRIVATE walsh CLI11::CLI11 nlohmann_json::nlohmann_json
                                                PkgConfig::LIBEDIT)
    walsh_precompile(walsh_command command <fmt/format.h> <nlohmann/json.hpp>)
    set(commit ${PROJECT_BINARY_DIR}/build_commit.cpp)
    add_custom_target(walsh_commit BYPRODUCTS ${commit}
      COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${commit}
              -DCOMMIT=${WALSH_COMMIT} -P ${PROJECT_SOURCE_DIR}/cmake/build_commit.cmake
      VERBATIM)
    target_sources(walsh_command PRIVATE ${commit})
    add_dependencies(walsh_command walsh_commit)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cli/build_info.cpp PROPERTIES
      COMPILE_DEFINITIONS "WALSH_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\";${WALSH_CUDA_DEFINITION}")
    install(TARGETS walsh_command RUNTIME DESTINATION bin COMPONENT program)
    if(WALSH_TESTS)
      walsh_test(cli "${WALSH_LAYERS}")
      if(TARGET test_cli)
        add_dependencies(test_cli walsh_command)
        target_compile_definitions(test_cli PRIVATE WALSH_COMMAND="$<TARGET_FILE:walsh_command>")
      endif()
    endif()
  endif()
  if(WALSH_TESTS AND cli_sources)
    add_test(NAME install.consumer COMMAND ${PROJECT_SOURCE_DIR}/tests/install/run.sh
                                           ${PROJECT_BINARY_DIR} "${CMAKE_CXX_FLAGS}")
    set_tests_properties(install.consumer PROPERTIES TIMEOUT 300 COST 100)
    add_test(NAME install.package COMMAND ${PROJECT_SOURCE_DIR}/tests/install/package.sh
                                          ${PROJECT_BINARY_DIR})
    set_tests_properties(install.package PROPERTIES TIMEOUT 300 COST 100 SKIP_RETURN_CODE 77)
    set(interpreter python3)
    if(Python_EXECUTABLE)
      set(interpreter ${Python_EXECUTABLE})
    endif()
    file(GLOB pages ${PROJECT_SOURCE_DIR}/docs/guide/*.md)
    add_test(NAME docs.guide COMMAND ${interpreter} ${PROJECT_SOURCE_DIR}/tests/guide/run.py
                                     $<TARGET_FILE:walsh_command> ${pages})
    set_tests_properties(docs.guide PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 COST 100
                         ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python")
    add_test(NAME tools.unity_groups COMMAND ${interpreter} -m doctest
                                             ${PROJECT_SOURCE_DIR}/tools/unity_groups.py)
    add_test(NAME docs.tables COMMAND ${interpreter} ${PROJECT_SOURCE_DIR}/tools/type_bits.py
                                      $<TARGET_FILE:walsh_command>)
    set_tests_properties(docs.tables PROPERTIES TIMEOUT 600 COST 50)
    add_test(NAME install.container COMMAND ${PROJECT_SOURCE_DIR}/tests/install/container.sh
                                            $<TARGET_FILE:walsh_command>)
    set_tests_properties(install.container PROPERTIES TIMEOUT 120)
    add_test(NAME serve.page COMMAND ${PROJECT_SOURCE_DIR}/tests/serve/page.sh
                                     $<TARGET_FILE:walsh_command>)
    set_tests_properties(serve.page PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77)
  endif()
  if(WALSH_FUZZ OR WALSH_TESTS)
    add_subdirectory(fuzz)
  endif()
  if(WALSH_BENCH)
    add_subdirectory(bench)
  endif()
  if(WALSH_PYTHON)
    add_subdirectory(python)
  endif()
  add_subdirectory(tools)
  include(${PROJECT_SOURCE_DIR}/cmake/install.cmake)
endfunction()
