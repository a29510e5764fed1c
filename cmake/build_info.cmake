# SPDX-License-Identifier: Apache-2.0
# Writes OUT, the one file that knows what a build was made from: cmake -DSOURCE=… -DVERSION=… -DOUT=… -P build_info.cmake
# Run with every build; a file that would say the same is left alone. The same commit gives the same text: the date is
# SOURCE_DATE_EPOCH, or else the commit's. What is no checkout of its own (an archive, a copy inside another checkout) has
# REVISION, or "unknown".
cmake_minimum_required(VERSION 3.25)

set(_revision "${REVISION}")
find_program(GIT git)
if(GIT)
  # Reading only: `describe --dirty` would write the index anew, which others may be working on.
  set(_git ${GIT} --no-optional-locks -C ${SOURCE})
  execute_process(COMMAND ${_git} rev-parse --show-prefix RESULT_VARIABLE _status OUTPUT_VARIABLE _prefix
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(_status EQUAL 0 AND _prefix STREQUAL "")
    execute_process(COMMAND ${_git} describe --tags --always --dirty --abbrev=12 OUTPUT_VARIABLE _described
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${_git} show -s --format=%ct HEAD OUTPUT_VARIABLE _commit_time
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(_described AND NOT _revision)
      set(_revision "${_described}")
    endif()
  endif()
endif()

set(_time "$ENV{SOURCE_DATE_EPOCH}")
if(NOT _time MATCHES "^[0-9]+$")
  set(_time "${_commit_time}")
endif()
set(_date "")
if(_time MATCHES "^[0-9]+$")
  set(ENV{SOURCE_DATE_EPOCH} ${_time})  # what string(TIMESTAMP) takes for now
  string(TIMESTAMP _date "%Y-%m-%dT%H:%M:%SZ" UTC)
endif()

foreach(_name IN ITEMS _revision _date)
  string(REGEX REPLACE "[^A-Za-z0-9._:/+-]" "_" ${_name} "${${_name}}")
  if("${${_name}}" STREQUAL "")
    set(${_name} unknown)
  endif()
endforeach()
file(CONFIGURE OUTPUT ${OUT} CONTENT [[// Written by cmake/build_info.cmake.
#include "base/build_info.h"

namespace hami::base {
const BuildInfo kBuildInfo = {"@VERSION@", "@_revision@", "@_date@"};
}  // namespace hami::base
]] @ONLY)
