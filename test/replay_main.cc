// SPDX-License-Identifier: Apache-2.0
//
// Feeds every file of a corpus folder (recursively) to a fuzz target once: how a fuzzer's finds stay fixed in builds
// without libFuzzer. Exit status 2 when the folder holds no file, so that a replay can not pass by testing nothing.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  int files = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      std::vector<std::uint8_t> bytes((std::istreambuf_iterator<char>(in)), {});
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
      ++files;
    }
  }
  std::printf("%d corpus files replayed\n", files);
  return files == 0 ? 2 : 0;
}
