// SPDX-License-Identifier: Apache-2.0
#include "region/tag.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "region/testing/region.h"

namespace hami::region {
namespace {

bool Write(int fd, uint64_t region, uint64_t object) { return WriteTag(fd, region, {object, 4096, 3}); }

// 0 unless all of it is as Write wrote it.
uint64_t Object(int fd, uint64_t region) {
  const Tag tag = ReadTag(fd, region);
  return tag.bytes == 4096 && tag.device == 3 ? tag.object : 0;
}

class TagTest : public ::testing::Test {
 protected:
  ~TagTest() override { close(fd_); }
  const int fd_ = memfd_create("tag_test", MFD_CLOEXEC);
};

TEST_F(TagTest, GivenTag_WhenDescriptorIsDuplicatedAndInherited_ThenItStays) {
  EXPECT_EQ(Object(fd_, 77), 0U);
  ASSERT_TRUE(Write(fd_, 77, 5));
  ASSERT_TRUE(Write(fd_, 77, 5)) << "again the same";
  EXPECT_EQ(Object(fd_, 77), 5U);
  const int copy = dup(fd_);
  EXPECT_EQ(Join(Spawn([&] { return static_cast<int>(Object(copy, 77)); })), 5);
  EXPECT_EQ(Object(fd_, 77), 5U) << "a child's end takes no name away";
  close(copy);
  EXPECT_EQ(Object(fd_, 77), 5U);
}

TEST_F(TagTest, GivenTag_WhenAskedWhetherItLacks_ThenOnlyIfKernelSaysSo) {
  ASSERT_TRUE(Write(fd_, 77, 5));
  EXPECT_FALSE(LacksTag(fd_, 77, 5));
  EXPECT_TRUE(LacksTag(fd_, 77, 6));
  EXPECT_TRUE(LacksTag(fd_, 78, 5));
  EXPECT_FALSE(LacksTag(-1, 77, 5)) << "nobody can be asked";
  const int other = memfd_create("tag_test", MFD_CLOEXEC);
  EXPECT_TRUE(LacksTag(other, 77, 5));
  close(other);
}

TEST_F(TagTest, GivenSizesAndDevices_ThenTheyComeBackAsTheyWere) {
  for (const uint64_t bytes : {uint64_t{512}, 2 * kMiB, kMaxTagBytes}) {
    for (const uint32_t device : {0U, kMaxDevices - 1}) {
      const int fd = memfd_create("tag_test", MFD_CLOEXEC);
      ASSERT_TRUE(WriteTag(fd, 8, {kMaxTagObject, bytes, device}));
      const Tag tag = ReadTag(fd, 8);
      EXPECT_EQ(tag.object, kMaxTagObject);
      EXPECT_EQ(tag.bytes, bytes);
      EXPECT_EQ(tag.device, device);
      close(fd);
    }
  }
}

TEST_F(TagTest, GivenTwoRegions_WhenBothNameADescriptor_ThenEachFindsItsOwn) {
  ASSERT_TRUE(Write(fd_, kMaxTagRegion, kMaxTagObject));
  ASSERT_TRUE(Write(fd_, 1, 2));
  EXPECT_EQ(Object(fd_, kMaxTagRegion), kMaxTagObject);
  EXPECT_EQ(Object(fd_, 1), 2U);
  EXPECT_EQ(Object(fd_, 3), 0U);
}

// As with the descriptors of NVIDIA's driver, which all name one device file.
TEST_F(TagTest, GivenTheSameFileOpenedTwice_ThenEachDescriptionHasItsOwnName) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd_);
  const int other = open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(other, 0);
  ASSERT_TRUE(Write(fd_, 9, 1));
  EXPECT_EQ(Object(other, 9), 0U);
  ASSERT_TRUE(Write(other, 9, 2));
  EXPECT_EQ(Object(fd_, 9), 1U);
  EXPECT_EQ(Object(other, 9), 2U);
  close(other);
  EXPECT_EQ(Object(fd_, 9), 1U);
}

TEST_F(TagTest, GivenWhatCanNotBeTagged_ThenItHasNoName) {
  EXPECT_FALSE(Write(-1, 1, 1));
  EXPECT_EQ(Object(-1, 1), 0U);
  EXPECT_EQ(Object(1'000'000, 1), 0U);
  EXPECT_FALSE(Write(fd_, 0, 1));
  EXPECT_FALSE(Write(fd_, 1, 0));
  EXPECT_FALSE(Write(fd_, kMaxTagRegion + 1, 1));
  EXPECT_FALSE(Write(fd_, 1, kMaxTagObject + 1));
  EXPECT_FALSE(WriteTag(fd_, 1, {1, 0, 0}));
  EXPECT_FALSE(WriteTag(fd_, 1, {1, 4097, 0}));
  EXPECT_FALSE(WriteTag(fd_, 1, {1, kMaxTagBytes + kTagUnit, 0}));
  EXPECT_FALSE(WriteTag(fd_, 1, {1, 512, kMaxDevices}));
  struct flock taken {};
  taken.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(fd_, F_OFD_SETLK, &taken), 0);
  EXPECT_EQ(Object(fd_, 1), 0U);
  const int other = open(("/proc/self/fd/" + std::to_string(fd_)).c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_FALSE(Write(other, 1, 1)) << "the program has locked all of the file";
  close(other);
}

TEST(TagLine, GivenLines_ThenOnlyReadLocksOfDescriptionsFarOutAreNames) {
  const auto parse = [](const char* line) -> std::string {
    uint64_t region = 0;
    uint64_t value = 0;
    int part = 7;
    if (!ParseTag(line, &region, &part, &value)) return "none";
    return std::to_string(region) + "/" + std::to_string(part) + "/" + std::to_string(value);
  };
  EXPECT_EQ(parse("lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427387981 4611686018427387986"), "77/0/5");
  EXPECT_EQ(parse("lock:\t12: OFDLCK ADVISORY  READ  -1 fe:00:31 4611686018427387981 4611686018427387986"), "77/0/5");
  EXPECT_EQ(parse("lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 5764607523034234957 5764607523034234960"), "77/1/3");
  for (const char* line :
       {"", "lock:", "pos:\t0", "lock:\t1: OFDLCK ADVISORY  READ ", "lock:\t1: OFDLCK ADVISORY  READ -1",
        "lock:\t1: POSIX  ADVISORY  READ 17 00:06:3 4611686018427387981 4611686018427387986",
        "lock:\t1: OFDLCK ADVISORY  WRITE -1 00:06:3 4611686018427387981 4611686018427387986",
        "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427387981 EOF",
        "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 0 4096",
        "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 6917529027641081933 6917529027641081936",
        "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427387904 4611686018427387986",
        "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427387981 4611686018427387981",
        "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427387981 99999999999999999999",
        "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427387981x 4611686018427387986"}) {
    EXPECT_EQ(parse(line), "none") << line;
  }
}

}  // namespace
}  // namespace hami::region
