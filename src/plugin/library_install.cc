// SPDX-License-Identifier: Apache-2.0

#include "plugin/library_install.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <filesystem>

#include "base/fd.h"
#include "base/files.h"
#include "base/strings.h"

namespace hami::plugin {
namespace {

namespace fs = std::filesystem;
using base::Concat;

constexpr std::size_t kMostLibraryBytes = 64 << 20;
constexpr const char* kOurs = "libvgpu.so.hami-cpp-";

// FNV-1a: tells builds apart; whoever may write here needs no collision.
std::string HashOf(std::string_view content) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : content) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64, hash);
  return text.data();
}

// A runtime that is to mount a file that is not there makes a folder of its name.
base::Status MakeWay(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(path, error))) return {};
  if (fs::remove(path, error)) return {};
  return base::Fail(path + " is a folder, and not an empty one", "remove it; this program puts a file there");
}

bool Preloads(const std::string& list, const std::string& line) {
  const auto listed = base::ReadFile(list, line.size() + 1);
  return listed && *listed == line;
}

}  // namespace

std::string MissingFrom(const std::string& folder, const std::string& library) {
  std::error_code error;
  const std::string plain = folder + "/libvgpu.so";
  if (!fs::is_regular_file(fs::symlink_status(library, error))) return library + " is not there";
  if (fs::read_symlink(plain, error) != fs::path(library).filename()) return plain + " is not ours";
  if (!Preloads(folder + "/ld.so.preload", plain + "\n")) return folder + "/ld.so.preload does not name " + plain;
  return {};
}

base::Result<std::string> InstallLibrary(const std::string& source, const std::string& folder) {
  const auto content = base::ReadLinkedFile(source, kMostLibraryBytes);
  if (!content) return tl::unexpected(content.error());
  HAMI_TRY(base::MakeFolders(folder, 0755));
  const std::string name = kOurs + HashOf(*content);
  const std::string path = Concat({folder, "/", name});
  const auto present = base::ReadFile(path, kMostLibraryBytes);
  HAMI_TRY(MakeWay(path));
  if (!present || *present != *content) HAMI_TRY(base::ReplaceFile(path, *content, 0755));

  const std::string plain = folder + "/libvgpu.so";
  std::error_code error;
  HAMI_TRY(MakeWay(plain));
  if (fs::read_symlink(plain, error) != name) HAMI_TRY(base::ReplaceLink(plain, name));
  const std::string list = folder + "/ld.so.preload";
  const std::string line = plain + "\n";
  HAMI_TRY(MakeWay(list));
  if (!Preloads(list, line)) HAMI_TRY(base::ReplaceFile(list, line, 0644));
  return path;
}

void RemoveOldLibraries(const std::string& folder, const std::string& current, const std::set<std::string>& in_use) {
  std::error_code error;
  std::vector<fs::path> old;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    if (it->path().filename().string().starts_with(kOurs) && path != current && !in_use.contains(path)) {
      old.push_back(it->path());
    }
  }
  for (const fs::path& path : old) fs::remove(path, error);
}

}  // namespace hami::plugin
