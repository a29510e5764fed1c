// SPDX-License-Identifier: Apache-2.0

#include "base/trash.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/fd.h"

namespace hami::base {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class Place {
 public:
  Place() {
    std::string pattern = testing::TempDir() + "/hami-trash-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  Fd Open() const { return Fd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
  void Files(const std::string& folder, int count) const {
    fs::create_directories(path_ + "/" + folder);
    for (int i = 0; i < count; ++i) std::ofstream(path_ + "/" + folder + "/" + std::to_string(i)) << i;
  }

 private:
  std::string path_;
};

TEST(Trash, GivenFolderLinkAndNothing_WhenRemoved_ThenOnlyFolderIsTrash) {
  const Place place;
  place.Files("full", 3);
  place.Files("elsewhere", 1);
  fs::create_symlink("elsewhere", place / "link");
  const Fd parent = place.Open();
  const auto full = MoveToTrash(parent.get(), "full");
  ASSERT_TRUE(full);
  EXPECT_FALSE(fs::exists(place / "full"));
  EXPECT_EQ(MoveToTrash(parent.get(), "link"), "");
  EXPECT_FALSE(fs::exists(fs::symlink_status(place / "link")));
  EXPECT_TRUE(fs::exists(place / "elsewhere/0"));
  EXPECT_EQ(MoveToTrash(parent.get(), "nothing"), "");
  EXPECT_THAT(FindTrash(parent.get()), ElementsAre(*full));
}

TEST(Trash, GivenMuchOfIt_WhenItIsEmptied_ThenACallDoesNoMoreThanItMay) {
  const Place place;
  place.Files(".removed-1", 30);
  place.Files(".removed-2", 30);
  const Fd parent = place.Open();
  std::vector<std::string> names = FindTrash(parent.get());
  ASSERT_EQ(names.size(), 2U);
  const auto left = [&] {
    const auto entries = fs::recursive_directory_iterator(place / ".");
    return std::distance(begin(entries), end(entries));
  };
  EmptyTrash(parent.get(), names, 20);
  EXPECT_EQ(left(), 62 - 20);
  for (int i = 0; i < 4; ++i) EmptyTrash(parent.get(), names, 20);
  EXPECT_THAT(names, IsEmpty());
  EXPECT_EQ(left(), 0);
}

TEST(Trash, GivenTreeBeyondFdLimit_WhenRemoved_ThenGoneAndNoLinkFollowed) {
  const Place temp;
  fs::create_directory(temp / "outside");
  std::ofstream(temp / "outside/precious") << "x";
  const Fd parent = temp.Open();
  Fd level(::dup(parent.get()));
  for (int i = 0; i < 200; ++i) {
    const char* const name = i == 0 ? "top" : "d";
    ASSERT_EQ(::mkdirat(level.get(), name, 0755), 0);
    level = Fd(::openat(level.get(), name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (i % 100 == 0) {
      ASSERT_EQ(::symlinkat((temp / "outside").c_str(), level.get(), "link"), 0);
    }
  }
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  bool done = false;
  for (int call = 0; !done && call < 20; ++call) {
    int budget = 100;
    done = RemoveTree(parent.get(), "top", budget);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(done);
  EXPECT_FALSE(fs::exists(temp / "top"));
  EXPECT_TRUE(fs::exists(temp / "outside/precious"));
}

}  // namespace
}  // namespace hami::base
