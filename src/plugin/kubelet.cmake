# SPDX-License-Identifier: Apache-2.0
# What the plugin does for the kubelet: device plugin protocol, allocations, what a container gets.
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)

# The protocols, generated at build time. Their code is not ours: it is compiled without our warnings, and its headers
# are system headers to whoever includes them.
set(_proto_dir ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${_proto_dir})
set(_proto_sources)
foreach(_name IN ITEMS device_plugin pod_resources)
  set(_outputs ${_proto_dir}/${_name}.pb.cc ${_proto_dir}/${_name}.pb.h
    ${_proto_dir}/${_name}.grpc.pb.cc ${_proto_dir}/${_name}.grpc.pb.h)
  add_custom_command(OUTPUT ${_outputs}
    COMMAND protobuf::protoc --proto_path=${CMAKE_SOURCE_DIR}/src/abi --cpp_out=${_proto_dir} --grpc_out=${_proto_dir}
      --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin> ${_name}.proto
    DEPENDS ${CMAKE_SOURCE_DIR}/src/abi/${_name}.proto VERBATIM)
  list(APPEND _proto_sources ${_outputs})
endforeach()
add_library(hami_kubelet_protocol STATIC ${_proto_sources})
target_include_directories(hami_kubelet_protocol SYSTEM PUBLIC ${_proto_dir})
target_link_libraries(hami_kubelet_protocol PUBLIC gRPC::grpc++ protobuf::libprotobuf Threads::Threads)

add_library(hami_plugin_kubelet STATIC
  agent.cc allocator.cc allocator_mig.cc allocator_tend.cc cdi.cc cdi_files.cc common_areas.cc kube_cluster.cc kubelet_client.cc
  kubelet_server.cc library_install.cc lock_folder.cc modes.cc mps_mode.cc origin.cc pod_view.cc preferred.cc record.cc resolve.cc resource_servers.cc response.cc serving.cc settle.cc
  share_folders.cc)
target_link_libraries(hami_plugin_kubelet PUBLIC hami_plugin_node hami_region_hosted PRIVATE hami_kubelet_protocol)

add_executable(hami-device-plugin main.cc)
target_link_libraries(hami-device-plugin PRIVATE hami_plugin_kubelet hami_build_info)

hami_test(plugin_allocation_test
  SOURCES allocator_mig_test.cc allocator_test.cc interleaving_test.cc origin_test.cc resolve_test.cc response_test.cc settle_test.cc
  LIBS hami_plugin_kubelet)
hami_test(plugin_kubelet_test
  SOURCES common_areas_test.cc kube_cluster_test.cc kubelet_test.cc node_files_test.cc
  LIBS hami_plugin_kubelet hami_kubelet_protocol hami_fake_apiserver)
hami_fuzz(plugin_kubelet_fuzz SOURCES kubelet_fuzz.cc LIBS hami_plugin_kubelet)
hami_fuzz(plugin_wire_fuzz SOURCES wire_fuzz.cc LIBS hami_plugin_kubelet)
