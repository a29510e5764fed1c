// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/table.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

namespace hami::vgpu {
namespace {

Entry Make(HandleKind kind, uint64_t key, uint64_t bytes, uint32_t context = 0) {
  Entry entry;
  entry.kind = kind;
  entry.key = key;
  entry.bytes = bytes;
  entry.context = context;
  return entry;
}

class TableTest : public testing::Test {
 protected:
  ~TableTest() override { table_->Reset(); }
  std::unique_ptr<Table> table_ = std::make_unique<Table>();
  Entry out_;
};

TEST_F(TableTest, GivenEntry_WhenTakenTwice_ThenOnlyTheFirstGetsIt) {
  ASSERT_TRUE(table_->Insert(Make(HandleKind::kPointer, 0x1000, 7)));
  EXPECT_TRUE(table_->Take(HandleKind::kPointer, 0x1000, &out_));
  EXPECT_EQ(out_.bytes, 7u);
  EXPECT_FALSE(table_->Take(HandleKind::kPointer, 0x1000, &out_));
}

TEST_F(TableTest, GivenSameKeyInTwoSpaces_ThenTheyAreTwoEntries) {
  table_->Insert(Make(HandleKind::kPointer, 0x1000, 1));
  table_->Insert(Make(HandleKind::kArray, 0x1000, 2));
  ASSERT_TRUE(table_->Find(HandleKind::kArray, 0x1000, &out_));
  EXPECT_EQ(out_.bytes, 2u);
  ASSERT_TRUE(table_->Find(HandleKind::kPointer, 0x1000, &out_));
  EXPECT_EQ(out_.bytes, 1u);
}

TEST_F(TableTest, GivenSameKeyAgain_ThenItIsReplaced) {
  table_->Insert(Make(HandleKind::kPointer, 0x1000, 1));
  table_->Insert(Make(HandleKind::kPointer, 0x1000, 5), &out_);
  EXPECT_EQ(out_.bytes, 1u);
  EXPECT_EQ(table_->size(), 1u);
  table_->Find(HandleKind::kPointer, 0x1000, &out_);
  EXPECT_EQ(out_.bytes, 5u);
}

TEST_F(TableTest, GivenRandomInsertsAndTakes_ThenAgreesWithAMap) {
  std::mt19937_64 random(7);
  std::unordered_map<uint64_t, uint64_t> model;
  for (int step = 0; step < 200'000; ++step) {
    const uint64_t key = (random() % 5000 + 1) * 512;
    if (random() % 2 == 0) {
      table_->Insert(Make(HandleKind::kPointer, key, static_cast<uint64_t>(step)));
      model[key] = static_cast<uint64_t>(step);
    } else {
      const bool taken = table_->Take(HandleKind::kPointer, key, &out_);
      ASSERT_EQ(taken, model.count(key) == 1) << "step " << step;
      if (taken) {
        ASSERT_EQ(out_.bytes, model[key]);
      }
      model.erase(key);
    }
  }
  EXPECT_EQ(table_->size(), model.size());
  for (const auto& [key, bytes] : model) {
    ASSERT_TRUE(table_->Find(HandleKind::kPointer, key, &out_));
    ASSERT_EQ(out_.bytes, bytes);
  }
}

TEST_F(TableTest, GivenEntriesOfTwoContexts_WhenOneDies_ThenOnlyItsEntriesGo) {
  for (uint64_t i = 1; i <= 1000; ++i) table_->Insert(Make(HandleKind::kPointer, i * 512, i, i % 2 == 0 ? 3 : 4));
  int taken = 0;
  while (table_->TakeOfContext(3, &out_)) {
    EXPECT_EQ(out_.context, 3u);
    ++taken;
  }
  EXPECT_EQ(taken, 500);
  EXPECT_EQ(table_->size(), 500u);
}

TEST_F(TableTest, GivenEntries_WhenSomeArePicked_ThenOneWalkTakesExactlyThese) {
  for (uint64_t i = 1; i <= 10'000; ++i) table_->Insert(Make(HandleKind::kPointer, i * 512, i));
  const auto third = [](const Entry& entry) { return entry.bytes % 3 == 0; };
  ASSERT_TRUE(table_->FindIf(third, &out_));
  EXPECT_EQ(out_.bytes % 3, 0u);
  table_->TakeIf(third);
  EXPECT_FALSE(table_->FindIf(third, &out_));
  EXPECT_EQ(table_->size(), 6667u);
  EXPECT_TRUE(table_->Find(HandleKind::kPointer, 512, &out_));
}

TEST_F(TableTest, GivenThreadsTakingTheSameKeys_ThenEachEntryIsTakenOnce) {
  constexpr uint64_t kEntries = 20'000;
  for (uint64_t i = 1; i <= kEntries; ++i) table_->Insert(Make(HandleKind::kPointer, i * 512, 1));
  std::atomic<uint64_t> taken{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Entry mine;
      for (uint64_t i = 1; i <= kEntries; ++i) {
        if (table_->Take(HandleKind::kPointer, i * 512, &mine)) taken.fetch_add(mine.bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken.load(), kEntries);
  EXPECT_EQ(table_->size(), 0u);
}

}  // namespace
}  // namespace hami::vgpu
