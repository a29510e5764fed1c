// SPDX-License-Identifier: Apache-2.0
//
// A control program for tests: a shell script that keeps its daemon's state as files in the pipe folder. `commands` is
// what it was told, a line each; what it answers to COMMAND is the file `answer-COMMAND` with blanks as '_', else
// nothing. The file `silent` makes it hang; `refuse-to-start` ends a new daemon at once.

#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace hami::mps {

inline std::string MakeFakeControl(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "fake-mps-control";
  std::ofstream(path) << R"sh(#!/bin/sh
dir=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -f ]; then
  [ -e "$dir/refuse-to-start" ] && { echo 'no such GPU'; exit 1; }
  echo "$CUDA_VISIBLE_DEVICES" > "$dir/devices"
  echo $$ > "$dir/daemon"
  while [ -e "$dir/daemon" ]; do sleep 0.02; done
  exit 0
fi
if [ ! -e "$dir/daemon" ] || ! kill -0 "$(cat "$dir/daemon")" 2>/dev/null; then
  echo 'Cannot find MPS control daemon process' >&2
  exit 1
fi
[ -e "$dir/silent" ] && exec sleep 30
while read -r line; do
  echo "$line" >> "$dir/commands"
  [ "$line" = quit ] && rm -f "$dir/daemon"
  answer="$dir/answer-$(echo "$line" | tr ' ' _)"
  [ -e "$answer" ] && cat "$answer"
done
exit 0
)sh";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

}  // namespace hami::mps
