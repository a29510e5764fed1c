// SPDX-License-Identifier: Apache-2.0
//
// Which rooms hear of contexts and of forks.
#include "vgpu/runtime/listeners.h"

#include "vgpu/memory/context_memory.h"
#include "vgpu/memory/listener.h"
#include "vgpu/pacer/pacer.h"
#include "vgpu/runtime/contexts.h"

namespace hami::vgpu {

void TellContextMade(int device) { PacerEnterContext(device); }
void TellContextMayEnd(CUcontext context) { PacerLeaveContext(context); }
void TellPrimaryMayEnd(CUdevice ordinal) {
  if (CUcontext const context = PrimaryOf(ordinal); context != nullptr) PacerLeaveContext(context);
}
void TellContextEnding() { MemoryOfContextEnding(); }
void TellContextStays(uint32_t id) { RefundLeft(id); }
void TellContextEnded(const EndedContext& context) { MemoryOfContextEnded(context); }
void TellForked() {
  ForgetMemory();
  ResetPacer();
}

}  // namespace hami::vgpu
