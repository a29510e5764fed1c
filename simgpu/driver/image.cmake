# SPDX-License-Identifier: Apache-2.0
# Images, modules and libraries, linking, look-up of functions, and the answer of what is not simulated.

target_sources(simgpu_cuda PRIVATE
  entry_points.cc error.cc export_table.cc function.cc image_source.cc jit_options.cc kernel.cc library.cc link.cc
  module.cc module_api.cc proc_address.cc profiler_and_logs.cc stubs.cc)
