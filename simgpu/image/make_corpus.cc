// SPDX-License-Identifier: Apache-2.0
// Writes the starting corpus of the image fuzzer (test/corpus/simgpu_image_fuzz) from hand-made images:
//   simgpu_make_corpus FOLDER

#include <cstdio>
#include <fstream>
#include <string>

#include "simgpu/image/cubin_writer.h"
#include "simgpu/image/image_builder.h"

namespace {

using namespace simgpu;
using namespace simgpu::test;

void Write(const std::string& path, const Blob& blob) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(blob.data()), static_cast<std::streamsize>(blob.size()));
}

CubinSpec Spec() {
  CubinSpec spec;
  spec.kernels = {{"tile", {{0, 48}, {48, 1}, {50, 2}, {56, 8}}, 28, 48, 2224, {128, 1, 1}},
                  {"nothing", {}, 4, 0, 0, {}}};
  spec.variables = {{"number", ".nv.global.init", 4, BlobOf("abcd"), true},
                    {"zeroed", ".nv.global", 4000, {}, false},
                    {"table", ".nv.constant3", 3, BlobOf("abc"), false}};
  return spec;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: simgpu_make_corpus FOLDER\n", stderr), 2;
  const std::string folder = std::string(argv[1]) + "/";
  CubinSpec spec = Spec();
  const Blob current = BuildCubin(spec);
  Write(folder + "cubin13", current);
  spec.relocatable = true;
  Write(folder + "cubin13_relocatable", BuildCubin(spec));
  spec = Spec();
  spec.old_generation = true;
  spec.sm = 75;
  Write(folder + "cubin12", BuildCubin(spec));
  spec.wide_params = true;
  Write(folder + "cubin_wide_params", BuildCubin(spec));
  const Blob ptx = BlobOf(".version 8.0\n.target sm_75\n.visible .entry k(.param .u64 a) { ret; }\n");
  Write(folder + "ptx", ptx);
  Write(folder + "fatbin_raw",
        BuildFatbin({{true, 90, Packing::kRaw, 64, current}, {false, 75, Packing::kRaw, 72, ptx}}));
  Write(folder + "fatbin_lz4", BuildFatbin({{true, 90, Packing::kLz4, 96, current}}));
  Write(folder + "fatbin_zstd", BuildFatbin({{false, 75, Packing::kZstd, 104, ptx}}));
  Image image;
  const std::string text = "simgpu-image 1\nkernel k\n param 8\n cost param 0\nglobal g 16 = 0102\n";
  if (ParseImage(AsBytes(text), Target{90}, &image) != ParseStatus::kOk) return 1;
  Write(folder + "text", BlobOf(text));
  image.compute_capability = 90;
  Write(folder + "written", WriteCubin(image));
  return 0;
}
