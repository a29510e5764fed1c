# SPDX-License-Identifier: Apache-2.0
# Images, modules and libraries, linking, look-up of functions, and the answer of what is not simulated.

target_sources(simgpu_cuda PRIVATE
  entry_points.cc error.cc export_table.cc function.cc image_source.cc jit_options.cc kernel.cc library.cc link.cc
  module.cc module_api.cc proc_address.cc profiler_and_logs.cc stubs.cc)

hami_test(simgpu_entry_points_test SOURCES entry_points_test.cc entry_points.cc stubs.cc)
hami_test(simgpu_error_test SOURCES error_test.cc error.cc)

find_library(LZ4_STATIC NAMES liblz4.a REQUIRED)
find_library(ZSTD_STATIC NAMES libzstd.a REQUIRED)
hami_test(simgpu_module_test SOURCES module_test.cc ../image/image_builder.cc
  LIBS simgpu_cuda ${LZ4_STATIC} ${ZSTD_STATIC})

# Looks at the built library from outside, so it is not linked to it.
if(GTest_FOUND)
  add_executable(simgpu_exports_test exports_test.cc)
  target_link_libraries(simgpu_exports_test PRIVATE hami_hosted GTest::gtest ${CMAKE_DL_LIBS})
  set_target_properties(simgpu_exports_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
  add_dependencies(simgpu_exports_test simgpu_cuda)
  add_test(NAME simgpu_exports_test COMMAND simgpu_exports_test $<TARGET_FILE:simgpu_cuda>)
  set_tests_properties(simgpu_exports_test PROPERTIES TIMEOUT 60)
endif()
