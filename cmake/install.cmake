# Installs headers, the libraries with their exported targets walsh::walsh and walsh::shared; makes
# the Debian package.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS walsh EXPORT walsh-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/walsh DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT walsh-targets NAMESPACE walsh:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/walsh)
if(WALSH_SHARED)
  # The shared library has an export set of its own: its users need none of the static library's
  # packages.
  install(TARGETS walsh_shared EXPORT walsh-shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT walsh-shared NAMESPACE walsh:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/walsh)
endif()
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/walsh-config.cmake.in ${PROJECT_BINARY_DIR}/walsh-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/walsh)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/walsh-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/walsh-config.cmake
              ${PROJECT_BINARY_DIR}/walsh-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/walsh)

# The pkg-config file is relative to its own location.
file(RELATIVE_PATH WALSH_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" WALSH_PC_PREFIX "${WALSH_PC_PREFIX}")
# -lwalsh means the shared library if there is one, which needs nothing else.
set(WALSH_PC_PRIVATE "")
if(WALSH_SHARED)
  set(WALSH_PC_PRIVATE .private)
endif()
set(WALSH_PC_LIBS "")
if(WALSH_HAS_CUDA)
  set(WALSH_PC_LIBS " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/walsh.pc.in ${PROJECT_BINARY_DIR}/walsh.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/walsh.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The installed program writes its manual pages and completions itself.
if(TARGET walsh_command)
  install(CODE "
    set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    execute_process(COMMAND \"\${prefix}/bin/walsh\" man --install \"\${prefix}/share\"
                    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT program)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/walsh RENAME copyright
        COMPONENT program)

# cpack -G DEB packs the program, the library, headers, manual pages, completions.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME walsh)
set(CPACK_PACKAGE_CONTACT "The walsh authors <walsh@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(WALSH_STATIC_LIBRARIES)
  # A package for several systems contains only the program: the library depends on the system.
  set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};walsh;program;/")
  set(CPACK_DEB_COMPONENT_INSTALL OFF)
else()
  # Programs with the library need these packages.
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libfmt-dev, libpcre2-dev, libutf8proc-dev, libxxhash-dev, \
libjpeg-dev, libpng-dev, libwebp-dev")
endif()
include(CPack)
