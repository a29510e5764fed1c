// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says about processes: /proc and record locks, by plain system calls. Judgements are conservative: a
// process is gone only when the kernel says so; whatever can not be found out counts as "still there".

#pragma once

#include <cstddef>
#include <cstdint>

#include "region/layout.h"

namespace hami::region {

enum class Presence : uint8_t { kGone, kThere, kUnknown };

struct ProcessStat {
  // kGone also for zombies, unless other threads of the process go on; kUnknown: exists, but may not be looked at.
  Presence presence = Presence::kUnknown;
  uint64_t start_time = 0;  // only with kThere
  bool stopped = false;     // by a signal or a debugger
};

// Reads /proc/<pid>/stat.
ProcessStat ReadProcessStat(int32_t pid);
// Picks state, number of threads and start time out of the text of a stat file; false if it is malformed. The command
// may hold anything.
bool ParseProcessStat(const char* text, size_t size, char* state, uint64_t* threads, uint64_t* start_time);

// What /proc says about one of the own descriptors, line by line (cut to 159 characters), until `visit` returns false.
void ForEachDescriptorLine(int fd, bool (*visit)(const char* line, void* context), void* context);

// Appends a number to a text, without stdio; the end of the text.
char* AppendNumber(char* out, uint32_t number);

uint64_t RandomNumber();

uint64_t OwnPidNamespace();  // inode, 0 if unknown
void OwnCommand(char (*command)[16]);

// Whether `pid` maps the same file that this process has mapped at `address`; kUnknown if either can not be read.
Presence ProcessMapsSameFile(int32_t pid, const void* address);

struct FileStatus {
  bool ok;
  bool regular;
  uint64_t device, inode;
  int64_t size;
};
FileStatus StatFile(int fd);

// Record locks over [start, start + length). TryRecordLock: true if this process now has it.
bool TryRecordLock(int fd, int64_t start, int64_t length);
void RecordUnlock(int fd, int64_t start, int64_t length);
enum class LockHeld : uint8_t { kNo, kYes, kUnknown };
// Asks who else holds it; `holder` is 0 if the holder has no pid in this namespace. The own process is never reported.
LockHeld AskRecordLock(int fd, int64_t start, int64_t length, int32_t* holder);

// A lock that lives exactly as long as this process's memory: until it exits or becomes another program. It belongs to
// a mapping of its own, which a forked child does not get, and to no descriptor, so that a program that closes all its
// descriptors keeps it, and it says so across pid namespaces. `fd` is any descriptor of the file. nullptr where it can
// not be had (a kernel before 3.15, nothing can be opened). Ends the record locks that this process has on the file.
void* HoldLifeLine(int fd, int64_t byte);
void DropLifeLine(void* line);
LockHeld AskLifeLine(int fd, int64_t byte);

int64_t MonotonicNanos();
int64_t UnixSeconds();
// Ends early with a signal, leaves errno alone, and is no place at which a thread can be cancelled: its caller may hold
// locks.
void SleepNanos(int64_t nanos);
void FutexWait(const uint32_t* word, uint32_t expected, int64_t timeout_ns);
void FutexWake(const uint32_t* word, int count);

}  // namespace hami::region
