# install(): headers, static library, exported target walsh::walsh.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS walsh EXPORT walsh-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/walsh DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT walsh-targets NAMESPACE walsh:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/walsh)
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/walsh-config.cmake.in ${PROJECT_BINARY_DIR}/walsh-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/walsh)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/walsh-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/walsh-config.cmake
              ${PROJECT_BINARY_DIR}/walsh-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/walsh)
