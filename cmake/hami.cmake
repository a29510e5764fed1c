# SPDX-License-Identifier: Apache-2.0
# What every target of the house shares.

find_package(Threads REQUIRED)
find_package(GTest)

add_library(hami_flags INTERFACE)
target_include_directories(hami_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
target_compile_options(hami_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion $<$<BOOL:${HAMI_WERROR}>:-Werror>
  -fvisibility=hidden
  # g++ 12 takes `"literal" + std::string` for an overlapping copy (GCC bug 105329); the warning has no true case here.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(HAMI_OFFICIAL_HEADERS)
  target_include_directories(hami_flags SYSTEM INTERFACE ${HAMI_OFFICIAL_HEADERS})
  target_compile_definitions(hami_flags INTERFACE HAMI_OFFICIAL_CUDA_H HAMI_OFFICIAL_NVML_H)
endif()

# Hosted code (programs, tests, simgpu) is what the sanitizers instrument; libvgpu.so itself is freestanding and is not.
add_library(hami_hosted INTERFACE)
target_link_libraries(hami_hosted INTERFACE hami_flags Threads::Threads)
if(HAMI_SANITIZE)
  list(JOIN HAMI_SANITIZE "," _san)
  target_compile_options(hami_hosted INTERFACE -fsanitize=${_san} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(hami_hosted INTERFACE -fsanitize=${_san})
endif()

# A fuzzer only finds its way through code that reports coverage.
if(HAMI_FUZZ)
  target_compile_options(hami_hosted INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_compile_definitions(hami_hosted INTERFACE __SANITIZE_ADDRESS__)  # as g++ says of itself
  target_link_options(hami_hosted INTERFACE -fsanitize=address,undefined)
endif()

# What only tests is compiled fast: it runs once, and to optimise GoogleTest's macros takes longer than they run. With a
# check of each operation in them a file takes 30 s instead of 8.
add_library(hami_test_code INTERFACE)
if(HAMI_FUZZ OR HAMI_SANITIZE MATCHES "address")
  target_compile_options(hami_test_code INTERFACE -O0 -fno-sanitize=undefined)
elseif(NOT HAMI_SANITIZE AND CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(hami_test_code INTERFACE -O1)
endif()

# Files of a test that are compiled as one see each other's constants. To clang an enumerator of a class shadows one of
# them, to g++ it does not, and g++ looks for what does shadow.
target_compile_options(hami_test_code INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-shadow>)

# hami_test(NAME SOURCES... LIBS ...): a GoogleTest program in build/test that ctest runs.
# APART: those of the sources that have helpers of the same name as another.
# SLOW: what its tests named Slow… prove is proved for the most part by the others, in less time. They are a second test,
# NAME_slow, with the label `slow`, which tools/test leaves out.
function(hami_test name)
  cmake_parse_arguments(T "SLOW" "TIMEOUT" "SOURCES;APART;LIBS;LABELS" ${ARGN})
  if(NOT GTest_FOUND)
    return()
  endif()
  set(_code ${T_SOURCES})
  list(FILTER _code INCLUDE REGEX "_test\\.cc$")
  set(_tested ${T_SOURCES})
  list(REMOVE_ITEM _tested ${_code})
  add_executable(${name} ${_code})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${name} PRIVATE hami_hosted ${T_LIBS} GTest::gmock GTest::gtest_main hami_test_code)
  if(_tested)  # compiled as the product is, with what the test defines
    add_library(${name}_tested OBJECT ${_tested})
    target_link_libraries(${name}_tested PRIVATE hami_hosted ${T_LIBS} GTest::gmock)
    foreach(_property IN ITEMS DEFINITIONS OPTIONS)
      set_property(TARGET ${name}_tested APPEND PROPERTY COMPILE_${_property} $<TARGET_PROPERTY:${name},COMPILE_${_property}>)
    endforeach()
    set_property(TARGET ${name}_tested APPEND PROPERTY INCLUDE_DIRECTORIES $<TARGET_PROPERTY:${name},INCLUDE_DIRECTORIES>)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${name}_tested>)
  endif()
  # Headers take longer to read than tests, so several files are compiled as one.
  set_property(SOURCE ${T_APART} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 60)
  endif()
  if(CMAKE_CROSSCOMPILING) # emulated
    math(EXPR T_TIMEOUT "${T_TIMEOUT} * 5")
  endif()
  if(T_SLOW)
    add_test(NAME ${name} COMMAND ${name} --gtest_filter=-Slow*)
    hami_slow_test(${name} TIMEOUT ${T_TIMEOUT} LABELS ${T_LABELS} ARGUMENTS --gtest_filter=Slow*)
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}")
endfunction()

# hami_slow_test(NAME ...): the program NAME once more as the test NAME_slow, with the label `slow`.
function(hami_slow_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "ARGUMENTS;ENVIRONMENT;LABELS" ${ARGN})
  add_test(NAME ${name}_slow COMMAND ${name} ${T_ARGUMENTS})
  # A filter that matches nothing would pass.
  set_tests_properties(${name}_slow PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS};slow"
    ENVIRONMENT "${T_ENVIRONMENT}" FAIL_REGULAR_EXPRESSION "Running 0 tests")
endfunction()

# hami_fuzz(NAME SOURCES... LIBS ...): a libFuzzer program in build/fuzz, when HAMI_FUZZ is on.
# Without it the same source is a test that replays the committed corpus (test/corpus/NAME).
function(hami_fuzz name)
  cmake_parse_arguments(T "" "" "SOURCES;LIBS" ${ARGN})
  if(HAMI_FUZZ)
    add_executable(${name} ${T_SOURCES})
    target_link_libraries(${name} PRIVATE hami_hosted ${T_LIBS})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  else()
    add_executable(${name} ${T_SOURCES} ${CMAKE_SOURCE_DIR}/test/replay_main.cc)
    target_link_libraries(${name} PRIVATE hami_hosted ${T_LIBS})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
    add_test(NAME ${name} COMMAND ${name} ${CMAKE_SOURCE_DIR}/test/corpus/${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 60)
  endif()
endfunction()
