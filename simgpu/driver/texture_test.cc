// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects: what may be one, what it says of itself, and how long it lives.
#include "simgpu/driver/testing/driver.h"

namespace simgpu::testing {
namespace {

class TextureTest : public DriverTest {
 protected:
  // A 100 x 10 plane of two-byte texels, 224 bytes a row.
  static CUDA_RESOURCE_DESC Plane(CUdeviceptr memory) {
    CUDA_RESOURCE_DESC desc{};
    desc.resType = CU_RESOURCE_TYPE_PITCH2D;
    desc.res.pitch2D.devPtr = memory;
    desc.res.pitch2D.format = CU_AD_FORMAT_UNSIGNED_INT8;
    desc.res.pitch2D.numChannels = 2;
    desc.res.pitch2D.width = 100;
    desc.res.pitch2D.height = 10;
    desc.res.pitch2D.pitchInBytes = 224;
    return desc;
  }

  static CUresult Make(const CUDA_RESOURCE_DESC& desc, const CUDA_RESOURCE_VIEW_DESC* view = nullptr) {
    CUtexObject object = 0;
    CUDA_TEXTURE_DESC texture{};
    const CUresult made = cuTexObjectCreate(&object, &desc, &texture, view);
    if (made == CUDA_SUCCESS) {
      EXPECT_OK(cuTexObjectDestroy(object));
    }
    return made;
  }

  static CUarray NewArray(unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR desc{};
    desc.Width = desc.Height = 32;
    desc.Format = CU_AD_FORMAT_FLOAT;
    desc.NumChannels = 1;
    desc.Flags = flags;
    CUarray array = nullptr;
    EXPECT_OK(cuArray3DCreate_v2(&array, &desc));
    return array;
  }
};

TEST_F(TextureTest, GivenAPlaneWhenMadeATextureThenItTellsWhatItWasMadeFrom) {
  RunWithContext([] {
    CUdeviceptr memory = 0;
    ASSERT_OK(cuMemAlloc_v2(&memory, 10 * 224));
    const CUDA_RESOURCE_DESC desc = Plane(memory);
    CUDA_TEXTURE_DESC texture{};
    texture.filterMode = CU_TR_FILTER_MODE_LINEAR;
    const std::uint64_t used = Used();
    CUtexObject object = 0;
    ASSERT_OK(cuTexObjectCreate(&object, &desc, &texture, nullptr));
    EXPECT_NE(object, 0U);
    EXPECT_EQ(Used(), used) << "a texture object is a view, not memory";

    CUDA_RESOURCE_DESC told{};
    EXPECT_OK(cuTexObjectGetResourceDesc(&told, object));
    EXPECT_EQ(told.res.pitch2D.devPtr, memory);
    EXPECT_EQ(told.res.pitch2D.pitchInBytes, 224U);
    CUDA_TEXTURE_DESC mode{};
    EXPECT_OK(cuTexObjectGetTextureDesc(&mode, object));
    EXPECT_EQ(mode.filterMode, CU_TR_FILTER_MODE_LINEAR);
    CUDA_RESOURCE_VIEW_DESC view{};
    EXPECT_EQ(cuTexObjectGetResourceViewDesc(&view, object), CUDA_ERROR_INVALID_VALUE) << "it was made without one";
    EXPECT_EQ(cuSurfObjectDestroy(object), CUDA_ERROR_INVALID_VALUE);

    EXPECT_OK(cuTexObjectDestroy(object));
    EXPECT_EQ(cuTexObjectDestroy(object), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuTexObjectGetResourceDesc(&told, object), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(TextureTest, GivenPlaneBeyondItsMemory_WhenMadeTexture_ThenRefused) {
  RunWithContext([] {
    CUdeviceptr memory = 0;
    ASSERT_OK(cuMemAlloc_v2(&memory, 9 * 224 + 200));  // the last row without its padding
    const CUDA_RESOURCE_DESC good = Plane(memory);
    EXPECT_OK(Make(good));

    CUDA_RESOURCE_DESC bad = good;
    bad.res.pitch2D.height = 1000;
    EXPECT_EQ(Make(bad), CUDA_ERROR_INVALID_VALUE) << "longer than its memory";
    bad.res.pitch2D.height = ~std::size_t{0};
    EXPECT_EQ(Make(bad), CUDA_ERROR_INVALID_VALUE) << "longer than can be counted";
    bad = good;
    bad.res.pitch2D.width = 113;
    EXPECT_EQ(Make(bad), CUDA_ERROR_INVALID_VALUE) << "a row longer than its pitch";
    bad = good;
    bad.res.pitch2D.pitchInBytes = 210;
    EXPECT_EQ(Make(bad), CUDA_ERROR_INVALID_VALUE) << "a pitch that is not aligned";
    bad = good;
    bad.res.pitch2D.devPtr += 64;
    EXPECT_EQ(Make(bad), CUDA_ERROR_INVALID_VALUE) << "a base that is not aligned";
    bad = good;
    bad.flags = 1;
    EXPECT_EQ(Make(bad), CUDA_ERROR_INVALID_VALUE);
    const CUDA_RESOURCE_VIEW_DESC view{};
    EXPECT_EQ(Make(good, &view), CUDA_ERROR_INVALID_VALUE) << "only arrays have views";
  });
}

TEST_F(TextureTest, GivenLinearMemoryWhenMadeATextureThenItsEndIsChecked) {
  RunWithContext([] {
    CUdeviceptr memory = 0;
    ASSERT_OK(cuMemAlloc_v2(&memory, 4096));
    CUDA_RESOURCE_DESC desc{};
    desc.resType = CU_RESOURCE_TYPE_LINEAR;
    desc.res.linear = {memory, CU_AD_FORMAT_FLOAT, 1, 4096};
    EXPECT_OK(Make(desc));
    desc.res.linear.sizeInBytes = 8192;
    EXPECT_EQ(Make(desc), CUDA_ERROR_INVALID_VALUE);
    desc.res.linear.sizeInBytes = 0;
    EXPECT_EQ(Make(desc), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(TextureTest, GivenArrays_WhenMadeTextureOrSurface_ThenOnlyLiveOfRightKind) {
  RunWithContext([] {
    CUDA_RESOURCE_DESC desc{};
    desc.resType = CU_RESOURCE_TYPE_ARRAY;
    desc.res.array.hArray = NewArray(0);
    const CUDA_RESOURCE_VIEW_DESC view{};
    EXPECT_OK(Make(desc, &view));
    CUsurfObject surface = 0;
    EXPECT_EQ(cuSurfObjectCreate(&surface, &desc), CUDA_ERROR_INVALID_VALUE)
        << "made without CUDA_ARRAY3D_SURFACE_LDST";
    EXPECT_OK(cuArrayDestroy(desc.res.array.hArray));
    EXPECT_EQ(Make(desc), CUDA_ERROR_INVALID_HANDLE);

    desc.res.array.hArray = NewArray(CUDA_ARRAY3D_SURFACE_LDST);
    ASSERT_OK(cuSurfObjectCreate(&surface, &desc));
    CUDA_RESOURCE_DESC told{};
    EXPECT_OK(cuSurfObjectGetResourceDesc(&told, surface));
    EXPECT_EQ(told.res.array.hArray, desc.res.array.hArray);
    EXPECT_EQ(cuTexObjectDestroy(surface), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuSurfObjectDestroy(surface));
  });
}

TEST_F(TextureTest, GivenItsContextDestroyedWhenAskedThenTheObjectIsGone) {
  RunWithContext([] {
    CUcontext ctx = nullptr;
    ASSERT_OK(cuCtxCreate_v2(&ctx, 0, 0));
    CUDA_RESOURCE_DESC desc{};
    desc.resType = CU_RESOURCE_TYPE_ARRAY;
    desc.res.array.hArray = NewArray(0);
    CUDA_TEXTURE_DESC texture{};
    CUtexObject object = 0;
    ASSERT_OK(cuTexObjectCreate(&object, &desc, &texture, nullptr));
    ASSERT_OK(cuCtxDestroy_v2(ctx));
    EXPECT_EQ(cuTexObjectGetTextureDesc(&texture, object), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Make(desc), CUDA_ERROR_INVALID_HANDLE);
  });
}

}  // namespace
}  // namespace simgpu::testing
