// SPDX-License-Identifier: Apache-2.0
// Copies and fills: the bytes, the forms, and what is refused.
#include <numeric>
#include <vector>

#include "simgpu/driver/testing/driver.h"

namespace simgpu::testing {
namespace {

using Bytes = std::vector<unsigned char>;

class CopyTest : public DriverTest {
 protected:
  static CUdeviceptr Alloc(std::size_t size) {
    CUdeviceptr p = 0;
    EXPECT_OK(cuMemAlloc_v2(&p, size));
    return p;
  }
  static Bytes Counting(std::size_t size) {
    Bytes bytes(size);
    std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
    return bytes;
  }
  static Bytes Read(CUdeviceptr p, std::size_t size) {
    Bytes bytes(size);
    EXPECT_OK(cuMemcpyDtoH_v2(bytes.data(), p, size));
    return bytes;
  }
};

TEST_F(CopyTest, GivenFlatCopiesThenEveryFormMovesTheBytes) {
  RunWithContext([] {
    const Bytes in = Counting(1000);
    const CUdeviceptr a = Alloc(1000);
    const CUdeviceptr b = Alloc(1000);
    EXPECT_OK(cuMemcpyHtoD_v2(a, in.data(), 1000));
    EXPECT_OK(cuMemcpyDtoD_v2(b, a, 1000));
    EXPECT_EQ(Read(b, 1000), in);
    EXPECT_OK(cuMemsetD8_v2(b, 0, 1000));
    EXPECT_OK(cuMemcpyAsync(b, a, 1000, nullptr));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQ(Read(b, 1000), in);
    Bytes out(1000);
    EXPECT_OK(cuMemcpy(reinterpret_cast<CUdeviceptr>(out.data()), a, 1000));
    EXPECT_EQ(out, in);
    EXPECT_OK(cuMemsetD8_v2(b, 0, 1000));
    EXPECT_OK(cuMemcpyHtoDAsync_v2_ptsz(b, in.data(), 1000, nullptr));
    EXPECT_OK(cuMemcpyDtoHAsync_v2_ptsz(out.data(), b, 1000, nullptr));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQ(out, in);
  });
}

TEST_F(CopyTest, GivenFewPageableBytesThenTheyGoWithTheCall) {
  RunWithContext([] {
    const CUdeviceptr gate = Alloc(4);
    const CUdeviceptr a = Alloc(4096);
    EXPECT_OK(cuMemsetD32_v2(gate, 0, 1));
    CUstream stream = nullptr;
    CUstream other = nullptr;
    ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ASSERT_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamWaitValue32_v2(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    const Bytes in = Counting(4096);
    Bytes source = in;
    EXPECT_OK(cuMemcpyHtoDAsync_v2(a, source.data(), source.size(), stream));
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY) << "the call waits for nothing";
    source.assign(source.size(), 0xFF);
    EXPECT_OK(cuStreamWriteValue32_v2(other, gate, 1, 0));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQ(Read(a, 4096), in) << "what the source held at the call";
  });
}

TEST_F(CopyTest, GivenRangesOutsideAnAllocationThenNothingIsCopied) {
  RunWithContext([] {
    const CUdeviceptr a = Alloc(1000);
    Bytes host(2000);
    EXPECT_EQ(cuMemcpyHtoD_v2(a, host.data(), 1001), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyHtoD_v2(a + 999, host.data(), 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyHtoD_v2(reinterpret_cast<CUdeviceptr>(host.data()), host.data(), 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyHtoD_v2(a, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpyDtoH_v2(host.data(), 0, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemsetD32_v2(a + 2, 1, 1), CUDA_ERROR_INVALID_VALUE) << "not aligned";
    EXPECT_EQ(cuMemsetD32_v2(a, 1, 251), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemcpyHtoD_v2(a, host.data(), 0));
    EXPECT_EQ(cuMemcpyHtoDAsync_v2(a, host.data(), 1, reinterpret_cast<CUstream>(0x1234)), CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST_F(CopyTest, GivenFillsThenElementsAndPitchCount) {
  RunWithContext([] {
    const CUdeviceptr a = Alloc(64);
    EXPECT_OK(cuMemsetD8_v2(a, 0xee, 64));
    EXPECT_OK(cuMemsetD16_v2(a, 0x0102, 2));
    EXPECT_OK(cuMemsetD32_v2(a + 4, 0x01020304, 1));
    const Bytes first = {2, 1, 2, 1, 4, 3, 2, 1, 0xee};
    EXPECT_EQ(Read(a, 9), first);
    EXPECT_OK(cuMemsetD2D8_v2(a, 16, 7, 3, 2));
    const Bytes rows = Read(a, 32);
    EXPECT_EQ(rows[2], 7);
    EXPECT_EQ(rows[3], 1);
    EXPECT_EQ(rows[18], 7);
    EXPECT_EQ(rows[19], 0xee);
    EXPECT_EQ(cuMemsetD2D8_v2(a, 2, 7, 3, 2), CUDA_ERROR_INVALID_VALUE) << "pitch below the width";
  });
}

TEST_F(CopyTest, GivenALargeZeroFillThenItReadsZeroAtBothEnds) {
  RunWithContext([] {
    const CUdeviceptr a = Alloc(5 * kMiB);
    EXPECT_OK(cuMemsetD8_v2(a, 1, 5 * kMiB));
    EXPECT_OK(cuMemsetD8_v2(a + 100, 0, 3 * kMiB));
    const Bytes bytes = Read(a, 5 * kMiB);
    EXPECT_EQ(bytes[99], 1);
    EXPECT_EQ(bytes[100], 0);
    EXPECT_EQ(bytes[2 * kMiB], 0);
    EXPECT_EQ(bytes[3 * kMiB + 99], 0);
    EXPECT_EQ(bytes[3 * kMiB + 100], 1);
  });
}

TEST_F(CopyTest, GivenBoxesThenPitchesOffsetsAndArraysCount) {
  RunWithContext([] {
    const Bytes in = Counting(12 * 5);
    CUDA_ARRAY_DESCRIPTOR desc{};
    desc.Width = 12;
    desc.Height = 5;
    desc.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    desc.NumChannels = 1;
    CUarray array = nullptr;
    ASSERT_OK(cuArrayCreate_v2(&array, &desc));
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = in.data();
    copy.srcPitch = 12;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.WidthInBytes = 12;
    copy.Height = 5;
    EXPECT_OK(cuMemcpy2D_v2(&copy));
    copy.Height = 6;
    EXPECT_EQ(cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE) << "below the array";

    const CUdeviceptr p = Alloc(1000);
    EXPECT_OK(cuMemsetD8_v2(p, 0xff, 1000));
    CUDA_MEMCPY3D box{};
    box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    box.srcArray = array;
    box.srcXInBytes = 2;
    box.srcY = 1;
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.dstDevice = p;
    box.dstPitch = 100;
    box.dstXInBytes = 10;
    box.dstY = 1;
    box.WidthInBytes = 4;
    box.Height = 3;
    box.Depth = 1;
    EXPECT_OK(cuMemcpy3D_v2(&box));
    const Bytes out = Read(p, 1000);
    EXPECT_EQ(out[109], 0xff);
    EXPECT_EQ(out[110], 12 + 2);
    EXPECT_EQ(out[113], 12 + 5);
    EXPECT_EQ(out[310], 36 + 2);
    EXPECT_EQ(out[410], 0xff);
    box.dstY = 8;
    EXPECT_EQ(cuMemcpy3D_v2(&box), CUDA_ERROR_INVALID_VALUE) << "beyond the allocation";
    box.dstPitch = 3;
    EXPECT_EQ(cuMemcpy3D_v2(&box), CUDA_ERROR_INVALID_VALUE) << "pitch below the row";

    unsigned char row[4] = {};
    EXPECT_OK(cuMemcpyAtoH_v2(row, array, 24, 4));
    EXPECT_EQ(row[3], 27);
    EXPECT_EQ(cuMemcpyAtoH_v2(row, array, 58, 4), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(CopyTest, GivenTwoDevicesThenPeerCopiesReachTheOther) {
  RunWithContext([] {
    CUcontext here = nullptr;
    CUcontext there = nullptr;
    EXPECT_OK(cuCtxGetCurrent(&here));
    const CUdeviceptr a = Alloc(100);
    EXPECT_OK(cuMemsetD8_v2(a, 5, 100));
    ASSERT_OK(cuCtxCreate_v2(&there, 0, 1));
    const CUdeviceptr b = Alloc(100);
    EXPECT_OK(cuMemcpyPeer(b, there, a, here, 100));
    EXPECT_EQ(Read(b, 1)[0], 5);
    EXPECT_EQ(cuMemcpyPeer(b, nullptr, a, here, 100), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST_F(CopyTest, GivenTheVirtualClockThenACopyTakesItsBandwidth) {
  RunWithContext([] {
    void* pinned = nullptr;
    ASSERT_OK(cuMemAllocHost_v2(&pinned, 256 * kMiB));
    const CUdeviceptr a = Alloc(256 * kMiB);
    const std::int64_t start = simgpu_now_ns();
    EXPECT_OK(cuMemcpyHtoD_v2(a, pinned, 256 * kMiB));
    const double seconds = static_cast<double>(simgpu_now_ns() - start) * 1e-9;
    const double rate = 256.0 * static_cast<double>(kMiB) / seconds;
    EXPECT_GT(rate, 10e9);
    EXPECT_LT(rate, 32e9) << "PCIe 4.0 x16 at most";
  });
}

}  // namespace
}  // namespace simgpu::testing
