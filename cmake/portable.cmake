# SPDX-License-Identifier: Apache-2.0
# With HAMI_PORTABLE, `hami` and simgpu's libraries need nothing of the machine but glibc from 2.28 on: what Debian ships as static archives is
# linked in, and the rest are headers. Everything else is built as always.
if(NOT HAMI_PORTABLE)
  function(hami_portable target)
  endfunction()
  return()
endif()

set(Boost_USE_STATIC_LIBS ON)
set(OPENSSL_USE_STATIC_LIBS TRUE)
add_library(yaml-cpp STATIC IMPORTED GLOBAL) # before find_package, which then leaves it
find_library(HAMI_YAML_ARCHIVE libyaml-cpp.a REQUIRED)
set_target_properties(yaml-cpp PROPERTIES IMPORTED_LOCATION ${HAMI_YAML_ARCHIVE})

set(HAMI_GLIBC_FLOOR 2.28)
set(_floor ${CMAKE_BINARY_DIR}/floor)
add_custom_command(OUTPUT ${_floor}/libc.so
  COMMAND python3 -B ${CMAKE_SOURCE_DIR}/tools/glibc_floor.py ${HAMI_GLIBC_FLOOR} ${_floor}
    ${CMAKE_C_COMPILER} "$<$<BOOL:${CMAKE_SYSROOT}>:--sysroot=${CMAKE_SYSROOT}>"
  DEPENDS ${CMAKE_SOURCE_DIR}/tools/glibc_floor.py COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(glibc_floor DEPENDS ${_floor}/libc.so)

function(hami_portable target)
  set(_sources ${CMAKE_SOURCE_DIR}/cmake/portable/glibc.c)
  get_target_property(_type ${target} TYPE)
  if(_type STREQUAL EXECUTABLE)
    list(APPEND _sources ${CMAKE_SOURCE_DIR}/cmake/portable/start.c)
    target_link_options(${target} PRIVATE -Wl,--wrap=__libc_start_main)
  endif()
  target_sources(${target} PRIVATE ${_sources})
  set_source_files_properties(${_sources} PROPERTIES COMPILE_OPTIONS "-fvisibility=hidden")
  add_dependencies(${target} glibc_floor)
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -L${_floor}
    # glibc before 2.34 keeps threads and dlopen in libraries of their own.
    -Wl,--no-as-needed ${_floor}/libpthread.so.0 ${_floor}/libdl.so.2 -Wl,--as-needed)
endfunction()
