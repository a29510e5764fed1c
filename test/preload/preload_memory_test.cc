// SPDX-License-Identifier: Apache-2.0
// No path past the limit, nothing refused that fits, everything given back. docs/develop/hazards.md says which defect
// of the predecessor each of these would have caught.
#include "test/preload/harness.h"

namespace preload {
namespace {

class MemoryScenario : public Preload, public testing::WithParamInterface<const char*> {};

TEST_P(MemoryScenario, GivenLimitOf1GiB_ThenHolds) { Pass({GetParam()}); }

INSTANTIATE_TEST_SUITE_P(
    Paths, MemoryScenario,
    testing::Values(
        "plain_limit", "small_blocks", "pitch", "managed", "host_is_free", "arrays", "free_results", "failing_free",
        "failing_allocation", "null_outputs", "before_init", "modules", "libraries", "loads_beside_a_long_call",
        "load_that_fits_after_a_long_call", "load_while_as_much_is_freed", "load_into_unused_reserve",
        "limits_set_by_two_threads", "context_limits", "total_is_limit", "external_memory", "async_default_pool",
        "async_per_thread_stream", "async_explicit_pool", "pool_keeps_reserve", "pool_without_context", "pool_trim",
        "pool_to_the_limit", "pool_destroyed_with_frees_pending", "pool_free_not_reached", "pool_same_stream",
        "pool_free_awaited", "pool_trimmed_to_odd_size", "pool_less_than_a_block_left", "plain_freed_in_stream_order",
        "plain_freed_event_synchronised", "plain_freed_event_queried", "plain_freed_other_stream",
        "plain_freed_pool_wants_it", "plain_freed_shows", "plain_freed_many", "plain_freed_more_than_marks",
        "pool_freed_within_a_step", "pool_destroyed_event_queried", "pool_freed_stream_destroyed",
        "pool_freed_event_synchronised", "pool_freed_event_queried", "pool_freed_other_stream",
        "pool_and_graphs_give_way", "graph_memory_reset", "graph_growth_in_steps", "graph_pool_gives_way_to_async",
        "context_without_nvml", "async_capture", "vmm_release_while_mapped", "vmm_segments", "vmm_failures",
        "vmm_import", "sparse_tiles", "sparse_tiles_replaced", "sparse_array_gone", "sparse_list_refused",
        "deferred_mapping", "sparse_tiles_in_part", "sparse_unmapped_behind_work", "retained_inside_a_mapping",
        "graph_memory", "graph_too_large", "graph_memory_freed_outside", "graph_pool_gives_way", "context_counts",
        "primary_references", "primary_reset", "created_context", "detached_context", "freed_while_a_reference_goes",
        "primary_ends_while_it_is_retained", "primary_retained_while_it_ends", "address_of_a_dying_context",
        "address_of_a_dying_context_in_a_graph", "contexts_to_the_limit", "green_context", "vmm_exported",
        "vmm_exported_number_reused"),
    [](const testing::TestParamInfo<const char*>& scenario) { return std::string(scenario.param); });

// In a container NVML counts pids as the host does.
TEST_P(MemoryScenario, GivenForeignPidsInNvml_ThenHolds) { Pass({GetParam()}, {{"SIMGPU_PID_OFFSET", "100000"}}); }

TEST_F(Preload, GivenUnmappedImport_WhenMakerLetsGo_ThenTakenForNothingElse) {
  Pass({"vmm_import_unmapped"}, {{"CUDA_DEVICE_MEMORY_LIMIT", "2g"}});
}

TEST_F(Preload, GivenMappedImport_WhenMakerLetsGo_ThenNewContextCostsNoMore) {
  Pass({"vmm_import_while_a_context_is_made"}, {{"CUDA_DEVICE_MEMORY_LIMIT", "2g"}});
}

class SharedScenario : public Preload, public testing::WithParamInterface<const char*> {};

TEST_P(SharedScenario, GivenProcessesOfAContainer_ThenWhatTheyShareCountsOnce) {
  Pass({GetParam()}, {{"CUDA_DEVICE_MEMORY_LIMIT", "3g"}});
}

INSTANTIATE_TEST_SUITE_P(Paths, SharedScenario,
                         testing::Values("shared_counts_once", "shared_maker_killed", "shared_user_killed",
                                         "shared_maker_lets_go_first", "shared_heirs_die",
                                         "shared_with_another_container", "shared_array_of_another_container",
                                         "shared_descriptor_is_the_programs", "shared_by_nobody", "shared_handed_on",
                                         "shared_with_itself", "shared_many"),
                         [](const testing::TestParamInfo<const char*>& scenario) {
                           return std::string(scenario.param);
                         });

TEST_F(Preload, GivenGrowthThatNoHookSaw_WhenSynchronised_ThenItIsCounted) {
  Pass({"first_use_measured_at_sync", PRELOAD_DEEP});
}

TEST_F(Preload, GivenTwoDevices_WhenFreedWithOtherCurrent_ThenRightRefunded) {
  Pass({"async_free_elsewhere"}, {{"SIMGPU", "2xH100"}});
}

TEST_F(Preload, GivenPoolOfTheOtherDevice_ThenTheOtherIsCharged) {
  Pass({"pool_of_other_device"}, {{"SIMGPU", "2xH100"}});
}

TEST_F(Preload, GivenTheDriversOwnPoolOfTheOtherDevice_ThenTheOtherIsCharged) {
  Pass({"default_pool_of_other_device"}, {{"SIMGPU", "2xH100"}});
}

TEST_F(Preload, GivenGraphThatAllocatesOnTwoDevices_ThenEachIsChargedItsPart) {
  Pass({"graph_on_two_devices"}, {{"SIMGPU", "2xH100"}});
}

TEST_F(Preload, GivenTwoDevices_WhenVmmNamesTheOther_ThenTheOtherIsCharged) {
  Pass({"vmm_other_device"}, {{"SIMGPU", "2xH100"}});
}

class MulticastScenario : public Preload, public testing::WithParamInterface<const char*> {};

TEST_P(MulticastScenario, GivenLimitOf1GiBOnEachOfTwoDevices_ThenHolds) { Pass({GetParam()}, {{"SIMGPU", "2xH100"}}); }

INSTANTIATE_TEST_SUITE_P(Multicast, MulticastScenario,
                         testing::Values("multicast_bound", "multicast_object_gone", "multicast_failures",
                                         "multicast_of_two_processes", "multicast_inside_a_mapping",
                                         "multicast_imported_twice"),
                         [](const testing::TestParamInfo<const char*>& scenario) {
                           return std::string(scenario.param);
                         });

TEST_F(Preload, GivenLimitBelowAContext_WhenRetained_ThenRefusedAndTakenDown) {
  Pass({"first_context_too_large"}, {{"CUDA_DEVICE_MEMORY_LIMIT", "200m"}});
  Pass({"first_context_too_large"}, {{"CUDA_DEVICE_MEMORY_LIMIT", "200m"}});
}

TEST_F(Preload, GivenNoLimit_ThenTheDriversOwnFigures) { Pass({"no_limit"}, {{"CUDA_DEVICE_MEMORY_LIMIT", "-"}}); }

TEST_F(Preload, GivenLimitOfZero_ThenTheDriversOwnFigures) { Pass({"no_limit"}, {{"CUDA_DEVICE_MEMORY_LIMIT", "0m"}}); }

}  // namespace
}  // namespace preload
