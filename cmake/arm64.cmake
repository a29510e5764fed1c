# SPDX-License-Identifier: Apache-2.0
# Debian's cross compiler for arm64, and Debian's arm64 packages in a folder of their own (`tools/setup --arm64` brings both).
# What is built runs here under qemu-aarch64-static.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/../tools/arm64-root --where OUTPUT_VARIABLE CMAKE_SYSROOT
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT EXISTS ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu)
  message(FATAL_ERROR "${CMAKE_SYSROOT} holds no arm64 packages; run tools/setup --arm64")
endif()
# Compilers and generators are this machine's, libraries and headers the other's.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${CMAKE_SYSROOT})
