// SPDX-License-Identifier: Apache-2.0
//
// Areas as the plugin hands them out, opened as libvgpu does.

#include "plugin/common_areas.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "region/common_area.h"

namespace hami::plugin {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kNow = 1'000'000'000'000;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

int Connected(const std::string& path, int flags = 0) {
  const int asking = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  const sockaddr_un address = AddressOf(path);
  (void)::connect(asking, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return asking;
}

// One byte with room for one descriptor beside it.
struct Message {
  Message() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr header{};
};

class CommonAreasTest : public ::testing::Test {
 protected:
  CommonAreasTest() {
    std::string name = ::testing::TempDir() + "/areas-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    Restart();
  }
  ~CommonAreasTest() override {
    areas_.reset();
    for (region::CommonArea* map : maps_) ::munmap(map, sizeof *map);
    fs::remove_all(folder_);
  }
  void Restart() {
    areas_.reset();
    areas_ = std::make_unique<CommonAreas>(folder_);
    ASSERT_TRUE(areas_->Start());
    ASSERT_TRUE(areas_->Offer({"GPU-0", "GPU-1"}));
  }
  std::string PathOf(const std::string& card) const { return CommonAreas::FolderOf(folder_, card) + "/area"; }
  // As a container does, which waits for an answer for 20 ms and asks again later.
  region::CommonFile OpenAs(const std::string& card) {
    region::CommonFile file;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (file.area == nullptr && std::chrono::steady_clock::now() < end) {
      file = region::OpenCommonArea(PathOf(card).c_str());
    }
    if (file.area != nullptr) maps_.push_back(file.area);
    return file;
  }

  std::string folder_;
  std::unique_ptr<CommonAreas> areas_;
  std::vector<region::CommonArea*> maps_;
};

TEST_F(CommonAreasTest, GivenTwoContainersOnACardThenTheySeeEachOtherAndNobodyElse) {
  const region::CommonFile a = OpenAs("GPU-0"), b = OpenAs("GPU-0"), elsewhere = OpenAs("GPU-1");
  ASSERT_TRUE(a.area != nullptr && b.area != nullptr && elsewhere.area != nullptr);
  const int line = region::CommonLinesOf(a.area).Join(-1, 1, 7, kNow);
  EXPECT_TRUE(region::CommonLinesOf(b.area).Has(line, 1, 7));
  EXPECT_FALSE(region::CommonLinesOf(elsewhere.area).Has(line, 1, 7));
}

// A file that is cut short under those who have it mapped kills them.
TEST_F(CommonAreasTest, GivenAHostileContainerThenItCanNotCutTheAreaShort) {
  const int asking = Connected(PathOf("GPU-0"));
  Message message;
  ASSERT_EQ(::recvmsg(asking, &message.header, MSG_CMSG_CLOEXEC), 1);
  int fd = -1;
  std::copy_n(CMSG_DATA(CMSG_FIRSTHDR(&message.header)), sizeof fd, reinterpret_cast<unsigned char*>(&fd));
  EXPECT_NE(::ftruncate(fd, 0), 0);
  EXPECT_NE(::ftruncate(fd, 1 << 30), 0);
  EXPECT_NE(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0) << "nor keep others from writing";
  ::close(fd);
  ::close(asking);
}

TEST_F(CommonAreasTest, GivenAnAreaThatIsNotSealedThenItIsRefused) {
  // Somebody else listens there, with an ordinary file.
  const std::string path = folder_ + "/area";
  const int listening = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = AddressOf(path);
  ASSERT_EQ(::bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listening, 4), 0);
  EXPECT_EQ(region::OpenCommonArea(path.c_str()).area, nullptr) << "nobody answers: given up soon";
  ASSERT_TRUE(region::CreateCommonArea((folder_ + "/file").c_str()));
  const int plain = ::open((folder_ + "/file").c_str(), O_RDWR | O_CLOEXEC);
  std::thread hand_out([&] {
    for (int i = 0; i < 2; ++i) {  // the one that gave up is still in the queue
      const int asking = ::accept(listening, nullptr, nullptr);
      Message message;
      cmsghdr* const header = CMSG_FIRSTHDR(&message.header);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::copy_n(reinterpret_cast<const unsigned char*>(&plain), sizeof plain, CMSG_DATA(header));
      (void)::sendmsg(asking, &message.header, MSG_NOSIGNAL);
      ::close(asking);
    }
  });
  EXPECT_EQ(region::OpenCommonArea(path.c_str()).area, nullptr);
  hand_out.join();
  ::close(plain);
  ::close(listening);
}

TEST_F(CommonAreasTest, WhenPluginRestarts_ThenContainersKeepAreasUntilNextIsThere) {
  const region::CommonFile before = OpenAs("GPU-0");
  ASSERT_NE(before.area, nullptr);
  EXPECT_TRUE(region::CommonIsWhole(before, PathOf("GPU-0").c_str()));
  areas_.reset();
  EXPECT_TRUE(region::CommonIsWhole(before, PathOf("GPU-0").c_str())) << "nobody answers, which harms nobody";
  before.area->members[0].process = 5;
  Restart();
  EXPECT_FALSE(region::CommonIsWhole(before, PathOf("GPU-0").c_str()));
  const region::CommonFile after = OpenAs("GPU-0");
  ASSERT_NE(after.area, nullptr);
  EXPECT_EQ(after.area->members[0].process, 0u);
}

TEST_F(CommonAreasTest, GivenAContainerThatAsksWithoutEndThenOthersAreAnswered) {
  std::vector<int> asking;
  // And never reads an answer.
  for (int i = 0; i < 40; ++i) asking.push_back(Connected(PathOf("GPU-0"), SOCK_NONBLOCK));
  EXPECT_NE(OpenAs("GPU-1").area, nullptr);
  for (const int fd : asking) ::close(fd);
}

TEST_F(CommonAreasTest, GivenAnAreaThenOnlyItsFolderCanBeEntered) {
  struct stat folder {};
  struct stat socket {};
  ASSERT_EQ(::stat(CommonAreas::FolderOf(folder_, "GPU-0").c_str(), &folder), 0);
  ASSERT_EQ(::stat(PathOf("GPU-0").c_str(), &socket), 0);
  EXPECT_EQ(folder.st_mode & 07777, 0755u);
  EXPECT_EQ(socket.st_mode & 07777, 0666u) << "containers run as anybody";
  EXPECT_THAT(areas_->Cards(), ElementsAre("GPU-0", "GPU-1"));
}

TEST_F(CommonAreasTest, GivenACardWhoseNameIsAPathThenItHasNoAreaAndTheOthersDo) {
  EXPECT_FALSE(areas_->Offer({"../x", "", "GPU-2"}));
  EXPECT_THAT(areas_->Cards(), ElementsAre("GPU-0", "GPU-1", "GPU-2"));
}

}  // namespace
}  // namespace hami::plugin
