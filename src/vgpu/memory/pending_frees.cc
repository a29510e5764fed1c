// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/pending_frees.h"

#include "vgpu/loader/driver.h"
#include "vgpu/runtime/capture.h"

namespace hami::vgpu {
namespace {

// More streams of one pool than this are not told apart.
constexpr int kStreamsOfAPool = 32;

}  // namespace

StreamId StreamIdOf(CUstream stream) {
  StreamId name;
  unsigned long long number = 0;
  if (real::cuStreamGetId(stream, &number) == CUDA_SUCCESS) name.number = number;
  if (real::cuStreamGetCtx(stream, &name.context) != CUDA_SUCCESS) name.context = nullptr;
  return name;
}

bool Reaches(const Waited& waited, const StreamId& on, uint64_t number) {
  const bool stream = waited.on.number != 0 && on.number == waited.on.number;
  const bool context = waited.on.context != nullptr && on.context == waited.on.context;
  return number <= waited.frees && (stream || context);
}

PendingFrees::Freed* PendingFrees::RecordOf(uint64_t pool, const StreamId& on, bool in_call) {
  int streams = 0;
  for (Freed& freed : list_) {
    if (freed.pool != pool || freed.in_call != in_call) continue;
    if (freed.on.number == on.number && freed.on.context == on.context) return &freed;
    ++streams;
  }
  if (streams >= kStreamsOfAPool && on.number != 0) return RecordOf(pool, {0, on.context}, in_call);
  Freed* const added = list_.Add();
  if (added != nullptr) *added = {pool, 0, 0, on, nullptr, in_call, false};
  return added;
}

template <typename Which>
void PendingFrees::RemoveIf(Which which) {
  for (size_t i = list_.size(); i-- > 0;) {
    if (which(static_cast<const Freed&>(list_[i]))) list_.Remove(&list_[i]);
  }
}

// False while the stream has something left to do, and where that can not be asked: the handle may mean another stream
// in this thread, and a stream that is being captured must not be touched.
bool PendingFrees::Idle(const Freed& freed) {
  CUcontext popped = nullptr;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  if (real::cuCtxPushCurrent_v2(freed.on.context) != CUDA_SUCCESS) return false;
  const bool idle = StreamIdOf(freed.handle).number == freed.on.number &&
                    real::cuStreamIsCapturing(freed.handle, &capture) == CUDA_SUCCESS &&
                    capture == CU_STREAM_CAPTURE_STATUS_NONE && real::cuStreamQuery(freed.handle) == CUDA_SUCCESS;
  real::cuCtxPopCurrent_v2(&popped);
  return idle;
}

void PendingFrees::Begin(uint64_t pool, uint64_t bytes) {
  if (Freed* const record = RecordOf(pool, {}, true); record != nullptr) record->bytes += bytes;
}

void PendingFrees::End(uint64_t pool, uint64_t bytes, const StreamId& stream, CUstream handle, bool freed) {
  Freed* const added = freed ? RecordOf(pool, stream, false) : nullptr;
  if (added != nullptr) {
    added->bytes += bytes;
    added->last = Next();
    added->handle = handle;
    added->askable = added->on.number != 0;
  } else if (freed) {
    return;  // without memory it stays in the call for ever: too careful is not wrong
  }
  Freed* const begun = RecordOf(pool, {}, true);
  if (begun == nullptr) return;
  begun->bytes -= bytes < begun->bytes ? bytes : begun->bytes;
  if (begun->bytes == 0) list_.Remove(begun);
}

uint64_t PendingFrees::Unreached(uint64_t pool, const StreamId& stream) const {
  uint64_t sum = 0;
  for (const Freed& freed : list_) {
    const bool same = stream.number != 0 && freed.on.number == stream.number && !freed.in_call;
    if (freed.pool == pool && !same) sum += freed.bytes;
  }
  return sum;
}

void PendingFrees::Reached(const Waited& waited) {
  RemoveIf([&](const Freed& freed) { return !freed.in_call && Reaches(waited, freed.on, freed.last); });
}

void PendingFrees::AskStreams(bool (*lives)(CUcontext context)) {
  if (list_.size() == 0) return;
  const RelaxedCapture relaxed;
  const uint64_t so_far = SoFar();
  for (size_t i = 0; i < list_.size();) {
    const Freed& freed = list_[i];
    if (!freed.in_call && freed.askable && lives(freed.on.context) && Idle(freed)) {
      Reached({so_far, {freed.on.number, nullptr}});
      i = 0;  // this one is gone, and others
    } else {
      ++i;
    }
  }
}

void PendingFrees::ForgetStream(CUstream handle) {
  for (Freed& freed : list_) {
    if (handle == nullptr || freed.handle == handle) freed.askable = false;
  }
}

void PendingFrees::ForgetContext(CUcontext context) {
  RemoveIf([&](const Freed& freed) { return !freed.in_call && freed.on.context == context; });
}

void PendingFrees::ForgetPool(uint64_t pool) {
  RemoveIf([&](const Freed& freed) { return !freed.in_call && freed.pool == pool; });
}

void PendingFrees::Reset() {
  list_.Clear();
  so_far_.store(0, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
