# With WALSH_STATIC_LIBRARIES programs run on systems with other versions of the libraries.
set(WALSH_FMT fmt::fmt)
if(WALSH_STATIC_LIBRARIES)
  set(WALSH_FMT fmt::fmt-header-only)  # Debian has no static library of it
  add_link_options(-static-libgcc -static-libstdc++)

  # walsh_use_archives(TARGET NAME...) lets TARGET stand for the archives lib<NAME>.a.
  function(walsh_use_archives target)
    set(archives "")
    foreach(name ${ARGN})
      find_library(WALSH_ARCHIVE_${name} NAMES lib${name}.a REQUIRED)
      list(APPEND archives ${WALSH_ARCHIVE_${name}})
    endforeach()
    set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${archives}")
  endfunction()
  walsh_use_archives(PkgConfig::PCRE2 pcre2-8)
  walsh_use_archives(PkgConfig::UTF8PROC utf8proc)
  walsh_use_archives(PkgConfig::XXHASH xxhash)
  walsh_use_archives(PkgConfig::JPEG jpeg)
  walsh_use_archives(PkgConfig::PNG png z)
  walsh_use_archives(PkgConfig::WEBP webp)
  walsh_use_archives(PkgConfig::LIBEDIT edit tinfo bsd md)
endif()
