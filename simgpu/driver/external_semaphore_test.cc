// SPDX-License-Identifier: Apache-2.0
// External semaphores: a stream and whoever else maps the same eight bytes.
#include <atomic>

#include "simgpu/driver/testing/time.h"

namespace simgpu::testing {
namespace {

// What another API would have made.
class Outside {
 public:
  Outside() : fd_(memfd_create("semaphore", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, 8), 0);
    word_ = static_cast<std::uint64_t*>(mmap(nullptr, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
  }
  ~Outside() {
    munmap(word_, 8);
    close(fd_);
  }
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

  // A descriptor to give away.
  int fd() const { return dup(fd_); }
  std::uint64_t value() const { return std::atomic_ref(*word_).load(); }
  void Set(std::uint64_t value) { std::atomic_ref(*word_).store(value); }

 private:
  int fd_;
  std::uint64_t* word_;
};

class ExternalSemaphoreTest : public TimedTest {
 protected:
  static CUexternalSemaphore Import(const Outside& outside, CUexternalSemaphoreHandleType type) {
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc{};
    desc.type = type;
    desc.handle.fd = outside.fd();
    CUexternalSemaphore semaphore = nullptr;
    EXPECT_OK(cuImportExternalSemaphore(&semaphore, &desc));
    return semaphore;
  }
  static CUresult Signal(CUexternalSemaphore semaphore, CUstream stream, std::uint64_t value = 0) {
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS params{};
    params.params.fence.value = value;
    return cuSignalExternalSemaphoresAsync(&semaphore, &params, 1, stream);
  }
  static CUresult Wait(CUexternalSemaphore semaphore, CUstream stream, std::uint64_t value = 0) {
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS params{};
    params.params.fence.value = value;
    return cuWaitExternalSemaphoresAsync(&semaphore, &params, 1, stream);
  }

  static constexpr auto kTimeline = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  static constexpr auto kBinary = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD;
};

TEST_F(ExternalSemaphoreTest, GivenTimeline_WhenSignalled_ThenItHasValueAfterEarlierWork) {
  RunWithContext([] {
    Outside outside;
    const Gpu gpu;
    const CUstream stream = NewStream();
    const CUexternalSemaphore semaphore = Import(outside, kTimeline);
    EXPECT_OK(gpu.Launch(stream, 1 * kMilli));
    EXPECT_OK(Signal(semaphore, stream, 7));
    EXPECT_EQ(outside.value(), 0U);
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQ(outside.value(), 7U);
    EXPECT_OK(cuDestroyExternalSemaphore(semaphore));
  });
}

TEST_F(ExternalSemaphoreTest, GivenATimelineWhenAwaitedThenAnyValueFromThereOnWillDo) {
  RunWithContext([] {
    Outside outside;
    const CUstream stream = NewStream();
    const CUexternalSemaphore semaphore = Import(outside, kTimeline);
    EXPECT_OK(Wait(semaphore, stream, 5));
    outside.Set(4);
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    outside.Set(6);
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQ(outside.value(), 6U) << "a wait changes nothing";
    EXPECT_OK(cuDestroyExternalSemaphore(semaphore));
  });
}

TEST_F(ExternalSemaphoreTest, GivenABinaryOneWhenSignalledOnceThenOneOfTwoWaitsIsServed) {
  RunWithContext([] {
    Outside outside;
    const CUstream streams[2] = {NewStream(), NewStream()};
    const CUstream signaller = NewStream();
    const CUexternalSemaphore semaphore = Import(outside, kBinary);
    for (const CUstream stream : streams) EXPECT_OK(Wait(semaphore, stream));
    const auto waiting = [&streams] {
      int count = 0;
      for (const CUstream stream : streams) count += cuStreamQuery(stream) == CUDA_ERROR_NOT_READY ? 1 : 0;
      return count;
    };
    EXPECT_EQ(waiting(), 2);
    EXPECT_OK(Signal(semaphore, signaller));
    EXPECT_OK(cuStreamSynchronize(signaller));
    EXPECT_EQ(waiting(), 1);
    EXPECT_EQ(outside.value(), 0U);
    outside.Set(1);
    EXPECT_EQ(waiting(), 0);
    EXPECT_OK(cuDestroyExternalSemaphore(semaphore));
  });
}

TEST_F(ExternalSemaphoreTest, GivenTwoProcessesWhenOneSignalsThenTheOtherGoesOn) {
  Outside outside;
  Child signaller([&] {
    UsePrimary(0);
    const CUexternalSemaphore semaphore = Import(outside, kTimeline);
    EXPECT_OK(Signal(semaphore, nullptr, 3));
    EXPECT_OK(cuStreamSynchronize(nullptr));
  });
  Run([&] {
    UsePrimary(1);
    const CUexternalSemaphore semaphore = Import(outside, kTimeline);
    EXPECT_OK(Wait(semaphore, nullptr, 3));
    EXPECT_OK(cuStreamSynchronize(nullptr));
    EXPECT_EQ(outside.value(), 3U);
  });
  EXPECT_EQ(signaller.Join(), 0);
}

TEST_F(ExternalSemaphoreTest, GivenQueuedWait_WhenSemaphoreIsDestroyed_ThenStreamKeepsIt) {
  RunWithContext([] {
    Outside outside;
    const CUstream stream = NewStream();
    const CUexternalSemaphore semaphore = Import(outside, kTimeline);
    EXPECT_OK(Wait(semaphore, stream, 1));
    EXPECT_OK(cuDestroyExternalSemaphore(semaphore));
    EXPECT_EQ(Wait(semaphore, stream, 1), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuDestroyExternalSemaphore(semaphore), CUDA_ERROR_INVALID_HANDLE);
    outside.Set(1);
    EXPECT_OK(cuStreamSynchronize(stream));
  });
}

TEST_F(ExternalSemaphoreTest, GivenNonSemaphore_ThenItIsRefusedAndDescriptorStaysCallers) {
  RunWithContext([] {
    CUexternalSemaphore semaphore = nullptr;
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc{};
    desc.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC;
    EXPECT_EQ(cuImportExternalSemaphore(&semaphore, &desc), CUDA_ERROR_NOT_SUPPORTED);
    desc.type = kBinary;
    desc.handle.fd = -1;
    EXPECT_EQ(cuImportExternalSemaphore(&semaphore, &desc), CUDA_ERROR_INVALID_HANDLE);
    desc.handle.fd = memfd_create("empty", MFD_CLOEXEC);
    EXPECT_EQ(cuImportExternalSemaphore(&semaphore, &desc), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(close(desc.handle.fd), 0);
    EXPECT_EQ(cuImportExternalSemaphore(&semaphore, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Signal(nullptr, nullptr), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuSignalExternalSemaphoresAsync(nullptr, nullptr, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    Outside outside;
    const CUexternalSemaphore good = Import(outside, kTimeline);
    const CUstream stream = NewStream();
    EXPECT_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(Signal(good, stream, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_OK(cuDestroyExternalSemaphore(good));
  });
}

}  // namespace
}  // namespace simgpu::testing
