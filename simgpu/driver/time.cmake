# SPDX-License-Identifier: Apache-2.0
# Time and order: the engine, streams, events, launches, graphs.

target_sources(simgpu_cuda PRIVATE
  capture.cc capture_api.cc engine.cc engine_commit.cc engine_queue.cc engine_wait.cc event.cc event_ipc.cc external_semaphore.cc graph.cc graph_api.cc graph_condition.cc graph_dot.cc
  graph_exec.cc graph_exec_api.cc graph_node_api.cc graph_params.cc graph_update.cc launch.cc launch_api.cc occupancy.cc
  stream.cc stream_memop.cc user_object.cc)

foreach(part IN ITEMS time graph order launch thread fault share_time ipc_event external_semaphore graph_condition drain graph_life profile mps capture_rules)
  hami_test(simgpu_${part}_test SOURCES ${part}_test.cc LIBS simgpu_cuda ${CMAKE_DL_LIBS} LABELS simgpu TIMEOUT 180)
endforeach()
if(TARGET simgpu_share_time_test)
  target_compile_definitions(simgpu_share_time_test PRIVATE SIMGPU_NVML_PATH="$<TARGET_FILE:simgpu_nvml>")
  add_dependencies(simgpu_share_time_test simgpu_nvml)
endif()
if(TARGET simgpu_mps_test)
  target_compile_definitions(simgpu_mps_test PRIVATE SIMGPU_MPS_CONTROL="$<TARGET_FILE:simgpu_mps_control>")
  add_dependencies(simgpu_mps_test simgpu_mps_control)
endif()
