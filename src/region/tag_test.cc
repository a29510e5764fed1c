// SPDX-License-Identifier: Apache-2.0
#include "region/tag.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "region/region_test_util.h"

namespace hami::region {
namespace {

class TagTest : public ::testing::Test {
 protected:
  ~TagTest() override { close(fd_); }
  const int fd_ = memfd_create("tag_test", MFD_CLOEXEC);
};

TEST_F(TagTest, GivenATaggedDescriptor_WhenItIsDuplicatedAndInherited_ThenTheNameIsThere) {
  EXPECT_EQ(TaggedObject(fd_, 77), 0U);
  ASSERT_TRUE(TagDescriptor(fd_, 77, 5));
  ASSERT_TRUE(TagDescriptor(fd_, 77, 5)) << "again the same";
  EXPECT_EQ(TaggedObject(fd_, 77), 5U);
  const int copy = dup(fd_);
  EXPECT_EQ(Join(Spawn([&] { return static_cast<int>(TaggedObject(copy, 77)); })), 5);
  EXPECT_EQ(TaggedObject(fd_, 77), 5U) << "a child's end takes no name away";
  close(copy);
  EXPECT_EQ(TaggedObject(fd_, 77), 5U);
}

TEST_F(TagTest, GivenTwoRegions_WhenBothNameADescriptor_ThenEachFindsItsOwn) {
  ASSERT_TRUE(TagDescriptor(fd_, kMaxTagRegion, kMaxTagObject));
  ASSERT_TRUE(TagDescriptor(fd_, 1, 2));
  EXPECT_EQ(TaggedObject(fd_, kMaxTagRegion), kMaxTagObject);
  EXPECT_EQ(TaggedObject(fd_, 1), 2U);
  EXPECT_EQ(TaggedObject(fd_, 3), 0U);
}

// As with the descriptors of NVIDIA's driver, which all name one device file.
TEST_F(TagTest, GivenTheSameFileOpenedTwice_ThenEachDescriptionHasItsOwnName) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd_);
  const int other = open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(other, 0);
  ASSERT_TRUE(TagDescriptor(fd_, 9, 1));
  EXPECT_EQ(TaggedObject(other, 9), 0U);
  ASSERT_TRUE(TagDescriptor(other, 9, 2));
  EXPECT_EQ(TaggedObject(fd_, 9), 1U);
  EXPECT_EQ(TaggedObject(other, 9), 2U);
  close(other);
  EXPECT_EQ(TaggedObject(fd_, 9), 1U);
}

TEST_F(TagTest, GivenWhatCanNotBeTagged_ThenItHasNoName) {
  EXPECT_FALSE(TagDescriptor(-1, 1, 1));
  EXPECT_EQ(TaggedObject(-1, 1), 0U);
  EXPECT_EQ(TaggedObject(1'000'000, 1), 0U);
  EXPECT_FALSE(TagDescriptor(fd_, 0, 1));
  EXPECT_FALSE(TagDescriptor(fd_, 1, 0));
  EXPECT_FALSE(TagDescriptor(fd_, kMaxTagRegion + 1, 1));
  EXPECT_FALSE(TagDescriptor(fd_, 1, kMaxTagObject + 1));
  struct flock taken {};
  taken.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(fd_, F_OFD_SETLK, &taken), 0);
  EXPECT_EQ(TaggedObject(fd_, 1), 0U);
  const int other = open(("/proc/self/fd/" + std::to_string(fd_)).c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_FALSE(TagDescriptor(other, 1, 1)) << "the program has locked all of the file";
  close(other);
}

TEST(TagLine, GivenLinesOfTheKernel_ThenOnlyReadLocksOfDescriptionsFarOutAreNames) {
  const auto parse = [](const char* line) -> std::string {
    uint64_t region = 0;
    uint64_t object = 0;
    return ParseTag(line, &region, &object) ? std::to_string(region) + "/" + std::to_string(object) : "none";
  };
  EXPECT_EQ(parse("lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427387981 4611686018427387986"), "77/5");
  EXPECT_EQ(parse("lock:\t12: OFDLCK ADVISORY  READ  -1 fe:00:31 4611686018427387981 4611686018427387986"), "77/5");
  for (const char* line :
       {"", "lock:", "pos:\t0", "lock:\t1: OFDLCK ADVISORY  READ ", "lock:\t1: OFDLCK ADVISORY  READ -1",
        "lock:\t1: POSIX  ADVISORY  READ 17 00:06:3 4611686018427387981 4611686018427387986",
        "lock:\t1: OFDLCK ADVISORY  WRITE -1 00:06:3 4611686018427387981 4611686018427387986",
        "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427387981 EOF",
        "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 0 4096",
        "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427387904 4611686018427387986",
        "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427387981 4611686018427387981",
        "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427387981 99999999999999999999",
        "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427387981x 4611686018427387986"}) {
    EXPECT_EQ(parse(line), "none") << line;
  }
}

}  // namespace
}  // namespace hami::region
