// SPDX-License-Identifier: Apache-2.0
// A program without a GPU under the library: what changed for it? Prints its umask, its signal handlers, its open files
// and whether a driver is loaded.
#include <dirent.h>
#include <link.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

int main() {
  const mode_t mask = umask(0);
  std::printf("umask %03o\n", static_cast<unsigned>(mask));
  for (const int signal_number : {SIGUSR1, SIGUSR2}) {
    struct sigaction action {};
    sigaction(signal_number, nullptr, &action);
    std::printf("handler %d\n", action.sa_handler == SIG_DFL ? 0 : 1);
  }
  int files = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++files;
  closedir(folder);
  std::printf("files %d\n", files - 3);  // ".", ".." and the folder itself
  int drivers = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* count) {
        const bool driver = std::strstr(object->dlpi_name, "libcuda") != nullptr ||
                            std::strstr(object->dlpi_name, "libnvidia") != nullptr;
        *static_cast<int*>(count) += driver ? 1 : 0;
        return 0;
      },
      &drivers);
  std::printf("drivers %d\n", drivers);
  return 0;
}
