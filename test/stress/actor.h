// SPDX-License-Identifier: Apache-2.0
//
// One thread's random life with a GPU: it makes, uses and frees memory by every path the driver has, keeps a list of
// what it did, and knows what it holds. Invariants: the same seed asks for the same things in the same order; an error
// other than "out of memory" on a valid request ends the process with the list of operations; with a quota, what this
// actor holds never passes it, so no request of it may be refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "abi/cuda_abi.h"
#include "test/stress/board.h"
#include "test/stress/random.h"

namespace stress {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGranule = 2 * kMiB;
constexpr uint64_t Up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

struct Options {
  uint64_t seed = 1;
  uint64_t quota = 0;  // bytes; 0: greedy, refusals are welcome
  uint64_t limit = 0;  // of the container
  uint64_t largest = 48 * kMiB;
  uint64_t context_bytes = 8 * kMiB;
  uint64_t watch = 0;     // what the driver may hold for the whole container at any time; 0: not looked at
  bool audit = false;     // see audit.h
  bool exact = false;     // alone in the container: model, driver and library are compared after each operation
  bool measured = false;  // also what the library can only measure: modules, limits of contexts
  bool contexts = false;  // creates and destroys contexts
  bool fork = false;
  bool arrays = false;  // whose layout is the driver's secret
  bool import = false;  // takes memory of other processes
  CUcontext context = nullptr;
  Board* board = nullptr;
  Cell* cell = nullptr;
  int wire = -1;  // datagram socket over which exported descriptors travel
};

enum class What : uint8_t {
  kPlain,
  kPublished,
  kManaged,
  kPooled,
  kPool,
  kPhysical,
  kMapping,
  kArray,
  kMipmap,
  kGraph,
  kHost,
  kContext,
  kModule,
  kExternal
};

inline constexpr uint64_t kImportedGroup = uint64_t{1} << 63;  // of another process's memory, beside its number

struct Object {
  What what;
  uint64_t handle = 0;
  uint64_t bytes = 0;  // what it costs the device; 0 where another object of its group pays for it
  uint64_t extra = 0;  // kPooled: its pool; kGraph: the graph; kContext: memory made inside; kPublished: its box
  uint64_t range = 0;  // kMapping: its size; kGraph: the address it allocates
  uint64_t group = 0;  // handles and mappings of one physical memory; it ends with the last of them
  bool flag = false;   // kGraph: its memory is out; kPhysical: can be exported
};

class Actor {
 public:
  explicit Actor(const Options& options);

  void Step();
  // Frees everything, in random order.
  void End();
  // Waits for the device, so that pools give back what they can.
  void Settle();
  bool idle() const { return objects_.empty(); }
  // The operations since the last call of Forget, on stderr.
  void Dump() const;
  void Forget() { log_.clear(); }

 private:
  struct Line {
    const char* what;
    uint64_t a, b;
    int result;
  };

  // One per path; each makes at most one object.
  void MakePlain();
  void MakePitched();
  void MakeManaged();
  void MakePooled();
  void MakePool();
  void MakePhysical();
  void MakeMapping();
  void MakeArray();
  void MakeMipmap();
  void MakeGraph();
  void MakeHost();
  void MakeContext();
  void MakeModule();
  void MakeExternal();
  void Retain();
  void ImportOwn();
  void Send();
  void Receive();
  void Publish();
  void OpenPublished();
  void Launch();
  void TrimSomething();
  void Synchronise();
  void Nonsense();
  void TooMuch();
  void Fork();
  void ResetPrimary();
  void SetLimit();
  void FreeSomething();

  void Free(size_t index);
  void FreePool(const Object& object);
  void FreeGraph(Object object);
  void FreeContext(const Object& object);
  bool FreePublished(const Object& object);
  void Map(CUmemGenericAllocationHandle handle, uint64_t bytes, uint64_t group);
  void Add(Object object) { objects_.push_back(object); }
  Object* Pick(What what);
  // Room for `bytes` more under the quota; makes some by freeing.
  bool Afford(uint64_t bytes);
  uint64_t Held() const;

  // Notes the call. True when it succeeded; out of memory is judged here; anything else ends the process.
  bool Done(const char* what, CUresult result, uint64_t a, uint64_t b);
  // As above for a call that must not succeed.
  void Declined(const char* what, CUresult result);
  [[noreturn]] void Fail(const char* what, uint64_t got, uint64_t want) const;
  void CompareBooks();
  void Watch() const;
  void Report();
  uint64_t Predicted();
  // What the driver holds beyond the model's sum: the size of something new that nobody states.
  uint64_t Unexplained();
  uint64_t Needed() const;
  CUstream AnyStream();

  Options options_;
  Random random_;
  std::vector<Object> objects_;
  std::vector<Line> log_;
  std::vector<CUstream> streams_;
  bool settled_ = false;   // nothing is under way
  uint64_t debt_ = 0;      // bytes that pools keep of what this actor freed
  uint64_t want_ = 0;      // bytes the call under way asks for
  uint64_t context_ = 0;   // exact: what the primary context costs
  uint64_t reported_ = 0;  // imported bytes in the cell
  uint64_t next_group_ = 1;
  uint64_t measured_ = 0;  // exact: what modules and limits cost beyond their objects
};

}  // namespace stress
