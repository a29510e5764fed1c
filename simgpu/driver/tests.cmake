# SPDX-License-Identifier: Apache-2.0
# Tests of devices, contexts and memory. They run against the built library; each file is one program.
foreach(part IN ITEMS mem mem_pool blocks share device copy texture multicast sparse)
  hami_test(simgpu_${part}_test SOURCES ${part}_test.cc LIBS simgpu_cuda LABELS simgpu)
endforeach()

# Parts that are pure are tested without the library.
hami_test(simgpu_visible_test SOURCES visible_test.cc visible.cc LABELS simgpu)
hami_test(simgpu_array_desc_test SOURCES array_desc_test.cc array_desc.cc LABELS simgpu)
hami_test(simgpu_sparse_layout_test SOURCES sparse_layout_test.cc sparse_layout.cc array_desc.cc LABELS simgpu)
hami_test(simgpu_arena_test SOURCES arena_test.cc arena.cc LABELS simgpu)

# A program that still calls CUDA from its static destructors and exit handlers.
add_executable(simgpu_late_calls late_calls.cc)
target_link_libraries(simgpu_late_calls PRIVATE hami_hosted simgpu_cuda)
set_target_properties(simgpu_late_calls PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
add_test(NAME simgpu_late_calls COMMAND ${CMAKE_COMMAND} -E env sh -c "rm -f late_calls.state; exec $<TARGET_FILE:simgpu_late_calls>"
  WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/test)
set_tests_properties(simgpu_late_calls PROPERTIES TIMEOUT 30 LABELS simgpu
  PASS_REGULAR_EXPRESSION "late calls: 3 of 3 succeeded" ENVIRONMENT
  "SIMGPU_STATE=${CMAKE_BINARY_DIR}/test/late_calls.state;SIMGPU_PROFILE=ideal;ASAN_OPTIONS=detect_leaks=0")

# The driver's state is never destroyed, because calls arrive after static destructors, and lies in mappings that a leak
# detector does not look into: in a test that uses the driver in its own process it would take it for a leak.
foreach(part IN ITEMS arena module)
  if(TARGET simgpu_${part}_test)
    set_property(TEST simgpu_${part}_test APPEND PROPERTY ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
  endif()
endforeach()
