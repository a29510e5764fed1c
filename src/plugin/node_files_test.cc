// SPDX-License-Identifier: Apache-2.0
//
// What the plugin leaves on disk, and how it talks to an API server.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/fd.h"
#include "device/annotations.h"
#include "kube/testing/fake_apiserver.h"
#include "plugin/cdi.h"
#include "plugin/kube_cluster.h"
#include "plugin/library_install.h"
#include "plugin/lock_folder.h"
#include "plugin/share_folders.h"
#include "plugin/testing/allocation_world.h"
#include "plugin/testing/fake_kubelet.h"
#include "region/reader.h"

namespace hami::plugin {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

unsigned ModeOf(const std::string& path) { return static_cast<unsigned>(fs::status(path).permissions()) & 0777; }
std::string Text(const std::string& path) { return base::ReadLinkedFile(path, 1 << 20).value_or("?"); }

Record ShareRecord(const std::string& folder) {
  Record record;
  record.owner = {"default", "a", "uid-a"};
  record.container_name = "c0";
  record.folder = folder;
  record.cache = "r.cache";
  return record;
}

class FoldersTest : public ::testing::Test {
 protected:
  TempFolder temp_;
  DiskShareFolders folders_{temp_.path()};
};

TEST_F(FoldersTest, GivenLimitsWhenAFolderIsMadeThenTheRegionHoldsThemByUuid) {
  RegionSettings settings;
  settings.limits = {{CardName(0), 1000 << 20, 30, 80ULL << 30}, {CardName(1), 2000 << 20, 0, 80ULL << 30}};
  settings.priority = 0;
  settings.core_policy = CorePolicy::kDisable;
  ASSERT_TRUE(folders_.Make(ShareRecord("shares/x"), settings));
  const auto fd = base::Open(temp_.path() + "/shares/x/r.cache", O_RDONLY);
  ASSERT_TRUE(fd);
  const auto snapshot = std::make_unique<region::Snapshot>();
  ASSERT_EQ(region::ReadSnapshot(fd->get(), false, snapshot.get()), region::Status::kOk);
  ASSERT_EQ(snapshot->device_count, 2u);
  EXPECT_EQ(snapshot->devices[0].uuid, CardName(0));
  EXPECT_EQ(snapshot->devices[0].limit, 1000u << 20);
  EXPECT_EQ(snapshot->devices[0].sm_limit, 30u);
  EXPECT_EQ(snapshot->devices[1].limit, 2000u << 20);
  EXPECT_EQ(snapshot->devices[1].sm_limit, 100u);
  EXPECT_EQ(snapshot->priority, 0);
  EXPECT_EQ(snapshot->utilization_switch, 0);
  EXPECT_EQ(snapshot->flags, region::kFlagFixedDevices) << "the container's own variables would count";
}

TEST_F(FoldersTest, ShareFile_ThenItSaysWhatTheEnvironmentSays) {
  RegionSettings settings;
  settings.limits = {{CardName(0), 1000 << 20, 30, 80ULL << 30}, {CardName(1), 2000ULL << 20, 0, 80ULL << 30}};
  settings.priority = 0;
  settings.core_policy = CorePolicy::kForce;
  settings.runs_as = 4711;
  Record record = ShareRecord("shares/x");
  record.share_file = true;
  const mode_t before = ::umask(077);
  const base::Status made = folders_.Make(record, settings);
  ::umask(before);
  ASSERT_TRUE(made);
  const std::string path = temp_.path() + "/shares/x/share.env";
  EXPECT_EQ(Text(path), "CUDA_DEVICE_MEMORY_SHARED_CACHE=" + temp_.path() +
                            "/r.cache\n"
                            "CUDA_DEVICE_MEMORY_LIMIT_0=1048576000\nCUDA_DEVICE_SM_LIMIT_0=30\n"
                            "CUDA_DEVICE_MEMORY_LIMIT_1=2097152000\nCUDA_DEVICE_SM_LIMIT_1=0\n"
                            "HAMI_DEVICE_LIMITS=" +
                            CardName(0) + "=1048576000:30," + CardName(1) +
                            "=2097152000:0\n"
                            "CUDA_TASK_PRIORITY=0\nGPU_CORE_UTILIZATION_POLICY=force\nCUDA_OVERSUBSCRIBE=false\n"
                            "HAMI_FAIL_OPEN=false\nHAMI_COMMON_AREA=/run/hami-cpp/gpu-time\n");
  EXPECT_EQ(ModeOf(path), 0644u);
}

// A8
TEST_F(FoldersTest, GivenTakenPlace_WhenFolderIsMade_ThenErrorNamesIt) {
  std::ofstream(temp_.path() + "/shares") << "no folder";
  RegionSettings settings;
  settings.limits = {{CardName(0), 1 << 20, 0, 0}};
  const base::Status made = folders_.Make(ShareRecord("shares/x"), settings);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("/shares"));
}

// A9
TEST_F(FoldersTest, GivenAKnownUserWhenAFolderIsMadeThenNobodyElseMayEnterIt) {
  RegionSettings settings;
  settings.limits = {{CardName(0), 1 << 20, 0, 0}};
  ASSERT_TRUE(folders_.Make(ShareRecord("containers/uid-a_c0"), settings));
  EXPECT_EQ(ModeOf(temp_.path() + "/containers/uid-a_c0"), 0777u);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  settings.runs_as = 4711;
  ASSERT_TRUE(folders_.Make(ShareRecord("containers/uid-a_c0"), settings));
  EXPECT_EQ(ModeOf(temp_.path() + "/containers/uid-a_c0"), 0700u);
}

TEST_F(FoldersTest, GivenShare_WhenContainerKnown_ThenNameLeadsToItAndGoesToo) {
  RegionSettings settings;
  settings.limits = {{CardName(0), 1 << 20, 0, 0}};
  const Record record = ShareRecord("shares/x");
  ASSERT_TRUE(folders_.Make(record, settings));
  ASSERT_TRUE(folders_.Link(record));
  ASSERT_TRUE(folders_.Link(record));
  const std::string name = temp_.path() + "/containers/uid-a_c0";
  EXPECT_TRUE(fs::exists(name + "/r.cache"));
  // HAMi's monitor follows no links, and the container was told of the other place.
  EXPECT_TRUE(fs::is_directory(fs::symlink_status(name)));
  EXPECT_TRUE(fs::exists(temp_.path() + "/shares/x/r.cache"));
  EXPECT_TRUE(folders_.Has(record));
  folders_.Remove(record);
  EXPECT_FALSE(folders_.Has(record));
  EXPECT_FALSE(fs::exists(fs::symlink_status(name)));
  EXPECT_FALSE(fs::exists(fs::symlink_status(temp_.path() + "/shares/x")));
  EXPECT_FALSE(fs::exists(temp_.path() + "/shares/x"));
}

// It was another container's, after all: the folder goes to the other name, and one of an earlier life there goes.
TEST_F(FoldersTest, ShareOfAnotherContainer_HasItsNameThen) {
  RegionSettings settings;
  settings.limits = {{CardName(0), 1 << 20, 0, 0}};
  Record record = ShareRecord("shares/x");
  ASSERT_TRUE(folders_.Make(record, settings));
  ASSERT_TRUE(folders_.Link(record));
  record.owner.uid = "uid-b";
  fs::create_directories(temp_.path() + "/containers/uid-b_c0/old");
  ASSERT_TRUE(folders_.Link(record));
  EXPECT_FALSE(fs::exists(fs::symlink_status(temp_.path() + "/containers/uid-a_c0")));
  EXPECT_TRUE(fs::is_regular_file(temp_.path() + "/containers/uid-b_c0/r.cache"));
  EXPECT_FALSE(fs::exists(temp_.path() + "/containers/uid-b_c0/old"));
  EXPECT_TRUE(folders_.Has(record));
  // Nothing outside is touched for a link that is not ours.
  fs::remove(temp_.path() + "/shares/x");
  fs::create_directory_symlink("../../etc", temp_.path() + "/shares/x");
  EXPECT_FALSE(folders_.Link(record));
  folders_.Remove(record);
  EXPECT_TRUE(fs::exists(temp_.path() + "/containers/uid-b_c0"));
}

TEST_F(FoldersTest, GivenLeftoversWhenItStartsThenOnlyOursWithoutARecordGo) {
  RegionSettings settings;
  settings.limits = {{CardName(0), 1 << 20, 0, 0}};
  const Record kept = ShareRecord("shares/kept");
  const Record lost = ShareRecord("shares/lost");
  ASSERT_TRUE(folders_.Make(kept, settings));
  ASSERT_TRUE(folders_.Make(lost, settings));
  ASSERT_TRUE(folders_.Link(lost));
  fs::create_directories(temp_.path() + "/containers/uid-hami_c");
  folders_.RemoveAllBut({kept});
  EXPECT_TRUE(fs::exists(temp_.path() + "/shares/kept"));
  EXPECT_FALSE(fs::exists(temp_.path() + "/shares/lost"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(temp_.path() + "/containers/uid-a_c0")));
  EXPECT_TRUE(fs::exists(temp_.path() + "/containers/uid-hami_c"));
}

// Folders are their tenants' to fill, and the kubelet waits while they are removed.
class FullFoldersTest : public FoldersTest {
 protected:
  void SetUp() override {
    settings_.limits = {{CardName(0), 1 << 20, 0, 0}};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
  }
  void TearDown() override { ::setrlimit(RLIMIT_NOFILE, &before_); }
  // Makes the folder of RECORD, and in it more levels than there are descriptors from now on.
  void Deep(const Record& record) {
    ASSERT_TRUE(folders_.Make(record, settings_));
    std::string path = temp_.path() + "/" + record.folder;
    for (int i = 0; i < 200; ++i) fs::create_directory(path += "/d");
    const rlimit few{64, before_.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  std::ptrdiff_t Left(const std::string& folder) const {
    const auto entries = fs::recursive_directory_iterator(temp_.path() + "/" + folder);
    return std::distance(begin(entries), end(entries));
  }

  RegionSettings settings_;
  rlimit before_{};
};

TEST_F(FullFoldersTest, GivenFolderDeeperThanDescriptors_WhenRemoved_ThenGoneAtOnce) {
  const Record record = ShareRecord("shares/x");
  Deep(record);
  folders_.Remove(record);
  EXPECT_FALSE(fs::exists(temp_.path() + "/shares/x"));
  EXPECT_FALSE(fs::is_empty(temp_.path() + "/shares")) << "nobody waited for that";
  for (int i = 0; i < 5 && folders_.EmptyTrash(); ++i) continue;
  EXPECT_EQ(Left("shares"), 0);
}

TEST_F(FullFoldersTest, GivenOldTrashWithLink_WhenStarted_ThenItGoesButTargetStays) {
  ASSERT_TRUE(folders_.Make(ShareRecord("shares/kept"), settings_));
  for (const char* folder : {"/shares/.removed-1/d", "/containers/.removed-2/d"}) {
    fs::create_directories(temp_.path() + folder);
    fs::create_directory_symlink(temp_.path() + "/shares/kept", temp_.path() + folder + "/link");
  }
  folders_.RemoveAllBut({ShareRecord("shares/kept")});
  EXPECT_FALSE(folders_.EmptyTrash());
  EXPECT_EQ(Left("containers"), 0);
  EXPECT_EQ(Left("shares"), 2);
}

TEST_F(FullFoldersTest, GivenOrphanDeeperThanDescriptors_WhenStarted_ThenGoneAtOnce) {
  Deep(ShareRecord("shares/x"));
  folders_.RemoveAllBut({});
  EXPECT_FALSE(fs::exists(temp_.path() + "/shares/x"));
}

TEST_F(FullFoldersTest, GivenFolderDeeperThanDescriptors_WhenMadeAnew_ThenDoneAtOnce) {
  const Record record = ShareRecord("containers/uid-a_c0");
  Deep(record);
  ASSERT_TRUE(folders_.Make(record, settings_));
  EXPECT_EQ(std::distance(fs::directory_iterator(temp_.path() + "/containers/uid-a_c0"), {}), 1);
}

TEST_F(FoldersTest, GivenRecordsWhenTheyAreSavedThenANewLifeReadsThem) {
  DiskRecordKeeper keeper(temp_.path() + "/state/records.json");
  ASSERT_TRUE(keeper.Load());
  EXPECT_THAT(*keeper.Load(), IsEmpty());
  const Records records = {ShareRecord("shares/x")};
  ASSERT_TRUE(keeper.Save(records));
  EXPECT_EQ(*DiskRecordKeeper(temp_.path() + "/state/records.json").Load(), records);
  std::ofstream(temp_.path() + "/state/records.json") << "{";
  EXPECT_FALSE(keeper.Load());
}

TEST_F(FoldersTest, RecordsSavedByAnother_AreNotOverwritten) {
  DiskRecordKeeper one(temp_.path() + "/records.json");
  DiskRecordKeeper two(temp_.path() + "/records.json");
  ASSERT_TRUE(one.Load() && two.Load());
  ASSERT_TRUE(one.Save({ShareRecord("shares/x")}));
  EXPECT_FALSE(one.Changed());
  EXPECT_TRUE(two.Changed());
  EXPECT_FALSE(two.Save({}));
  EXPECT_EQ(two.Load()->size(), 1u);
  EXPECT_TRUE(two.Save({}));
  EXPECT_TRUE(one.Changed());
}

// What containers mount may be gone, or be a folder that a runtime made of a missing file.
TEST_F(FoldersTest, InstalledFilesThatAreGone_AreMissedAndPutBack) {
  const std::string source = temp_.path() + "/libvgpu.so";
  const std::string folder = temp_.path() + "/vgpu";
  std::ofstream(source) << "one";
  const std::string library = *InstallLibrary(source, folder);
  EXPECT_EQ(MissingFrom(folder, library), "");
  for (const std::string& path : {folder + "/ld.so.preload", folder + "/libvgpu.so", library}) {
    fs::remove(path);
    EXPECT_THAT(MissingFrom(folder, library), HasSubstr(path.substr(folder.size())));
    fs::create_directory(path);
    EXPECT_NE(MissingFrom(folder, library), "");
    ASSERT_TRUE(InstallLibrary(source, folder)) << path;
    EXPECT_EQ(MissingFrom(folder, library), "");
  }
  fs::remove(folder + "/ld.so.preload");
  fs::create_directories(folder + "/ld.so.preload/x");
  const auto refused = InstallLibrary(source, folder);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("ld.so.preload is a folder, and not an empty one"));
}

// A folder that was removed while it is open, which is what a mount of it is, cannot be put back from here.
TEST_F(FoldersTest, RemovedFolder_IsRecognised) {
  const std::string path = temp_.path() + "/lock";
  EXPECT_FALSE(IsRemoved(path));
  ASSERT_TRUE(MakeLockFolder(path));
  EXPECT_FALSE(IsRemoved(path));
  const auto held = base::Open(path, O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(held);
  fs::remove(path);
  const std::string there = "/proc/self/fd/" + std::to_string(held->get());
  EXPECT_TRUE(IsRemoved(there));
}

TEST_F(FoldersTest, GivenLibraryInUse_WhenInstalledAnew_ThenOldFileStaysAsItIs) {
  const std::string source = temp_.path() + "/libvgpu.so";
  const std::string folder = temp_.path() + "/vgpu";
  std::ofstream(source) << "one";
  const auto first = InstallLibrary(source, folder);
  ASSERT_TRUE(first);
  const auto mapped = base::Open(*first, O_RDONLY);
  ASSERT_TRUE(mapped);
  std::ofstream(source) << "two";
  const auto second = InstallLibrary(source, folder);
  ASSERT_TRUE(second);
  EXPECT_NE(*first, *second);
  EXPECT_EQ(Text(*first), "one");
  EXPECT_EQ(Text(folder + "/libvgpu.so"), "two");
  EXPECT_EQ(Text(folder + "/ld.so.preload"), folder + "/libvgpu.so\n");
  std::ofstream(folder + "/libvgpu.so.v2.10.0") << "HAMi's";
  RemoveOldLibraries(folder, *second, {*first});
  EXPECT_TRUE(fs::exists(*first));
  RemoveOldLibraries(folder, *second, {});
  EXPECT_FALSE(fs::exists(*first));
  EXPECT_TRUE(fs::exists(*second));
  EXPECT_TRUE(fs::exists(folder + "/libvgpu.so.v2.10.0"));
}

// What the list names, every program of every container loads.
TEST_F(FoldersTest, GivenLibraryPlaceBlocked_WhenInstalled_ThenNoPreloadNamesIt) {
  const std::string source = temp_.path() + "/libvgpu.so";
  const std::string folder = temp_.path() + "/vgpu";
  std::ofstream(source) << "one";
  fs::create_directories(folder + "/libvgpu.so/in the way");
  EXPECT_FALSE(InstallLibrary(source, folder));
  EXPECT_FALSE(fs::exists(folder + "/ld.so.preload"));
}

TEST_F(FoldersTest, GivenDriverRoot_ThenSpecsNameItsFilesAndOldClassesGo) {
  const std::string root = temp_.path() + "/root";
  fs::create_directories(root + "/usr/lib64");
  for (const char* name : {"libcuda.so.1", "libcuda.so.580.1", "libnvidia-ml.so.580.1", "libc.so.6"}) {
    std::ofstream(root + "/usr/lib64/" + name) << name;
  }
  Options options;
  options.driver_root = "/run/nvidia/driver";
  options.driver_root_in_container = root;
  const DriverFiles files = FindDriverFiles(options);
  ASSERT_EQ(files.libraries.size(), 2u);
  EXPECT_EQ(files.libraries[0].host_path, "/run/nvidia/driver/usr/lib64/libcuda.so.580.1");
  EXPECT_EQ(files.libraries[0].container_path, "/usr/lib64/libcuda.so.580.1");
  const std::string folder = temp_.path() + "/cdi";
  ASSERT_TRUE(WriteCdiSpecs({{"gds", "{}"}}, folder));
  EXPECT_EQ(CdiModesOf(folder), std::vector<std::string>{"gds"});
  ASSERT_TRUE(WriteCdiSpecs(MakeCdiSpecs(MakeTestCards(1), files, options), folder));
  EXPECT_TRUE(fs::exists(folder + "/k8s.device-plugin.nvidia.com-gpu.json"));
  EXPECT_THAT(CdiModesOf(folder), IsEmpty());
}

// A device node of a module that is loaded late, or a file that somebody removed.
TEST_F(FoldersTest, GivenWrittenSpecs_WhenNodeChangesButNoGpu_ThenTheyFollowIt) {
  Options options;
  options.list_strategies = {ListStrategy::kCdiCri};
  options.driver_root_in_container = temp_.path() + "/root";
  fs::create_directories(temp_.path() + "/root/dev");
  std::ofstream(temp_.path() + "/root/dev/nvidiactl") << "";
  const std::string spec = temp_.path() + "/cdi/k8s.device-plugin.nvidia.com-gpu.json";
  CdiFolder folder(options, temp_.path() + "/cdi");
  const Cards cards = MakeTestCards(1);
  folder.Refresh(cards);
  EXPECT_THAT(Text(spec), Not(HasSubstr("/dev/nvidia-uvm")));
  std::ofstream(temp_.path() + "/root/dev/nvidia-uvm") << "";
  folder.Refresh(cards);
  EXPECT_THAT(Text(spec), HasSubstr("/dev/nvidia-uvm"));
  fs::remove(spec);
  folder.Refresh(cards);
  EXPECT_TRUE(fs::exists(spec));
}

// Every container gets it, and may write to it.
TEST_F(FoldersTest, GivenLockFolder_WhenSomebodyElses_ThenErrorElseOpenToAll) {
  const std::string path = temp_.path() + "/vgpulock";
  ASSERT_TRUE(MakeLockFolder(path));
  EXPECT_EQ(ModeOf(path), 0777u);
  fs::permissions(path, fs::perms::owner_all);
  ASSERT_TRUE(MakeLockFolder(path));
  EXPECT_EQ(ModeOf(path), 0777u) << "though it was there";
  fs::rename(path, path + "-elsewhere");
  fs::create_directory_symlink(path + "-elsewhere", path);
  const base::Status linked = MakeLockFolder(path);
  ASSERT_FALSE(linked);
  EXPECT_THAT(linked.error().message, HasSubstr(path));
  fs::remove(path);
  std::ofstream(path) << "";
  EXPECT_FALSE(MakeLockFolder(path));
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  fs::remove(path);
  ASSERT_TRUE(MakeLockFolder(path));
  ASSERT_EQ(::chown(path.c_str(), 4711, 4711), 0);
  const base::Status foreign = MakeLockFolder(path);
  ASSERT_FALSE(foreign);
  EXPECT_THAT(foreign.error().message, HasSubstr("4711"));
}

TEST_F(FoldersTest, GivenAnImexChannelWhenItsNodeIsThereThenItIsPresent) {
  Options options;
  options.driver_root_in_container = temp_.path() + "/root";
  options.imex_channels = {0};
  fs::create_directories(temp_.path() + "/root/dev/nvidia-caps-imex-channels");
  std::ofstream(temp_.path() + "/root/dev/nvidiactl") << "";
  EXPECT_THAT(PresentImexChannels(options), IsEmpty());
  std::ofstream(temp_.path() + "/root/dev/nvidia-caps-imex-channels/channel0") << "";
  EXPECT_EQ(PresentImexChannels(options), std::vector<int>{0});
}

}  // namespace
}  // namespace hami::plugin
