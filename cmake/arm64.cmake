# SPDX-License-Identifier: Apache-2.0
# Debian's cross compiler for arm64; what is built runs here under qemu-aarch64-static (`tools/setup --arm64` installs both).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# Headers without code, like libexpected's, are this machine's; archives are those of Debian's arm64.
set(CMAKE_IGNORE_PATH /usr/lib/x86_64-linux-gnu /usr/lib)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
