// SPDX-License-Identifier: Apache-2.0

#include "plugin/mode_keeper.h"

#include "base/files.h"
#include "base/strings.h"
#include "plugin/own_file.h"

namespace hami::plugin {

using base::Concat;
using base::Status;

namespace {
constexpr std::size_t kMostBytes = 64;
}

Status ModeKeeper::Start() {
  const auto text = ReadOwnFile(path_, kMostBytes);
  if (!text) return tl::unexpected(text.error());
  if (!*text) return {};
  const auto mode = DecodeModeFile(**text);
  if (!mode) {
    return base::Fail(Concat({path_, " names no operating mode: ", base::Printable(**text)}),
                      "it says how the GPUs of this node are divided: write hami-core, mig or mps and a newline");
  }
  in_force_ = *mode;
  return {};
}

Status ModeKeeper::Save(OperatingMode mode) {
  HAMI_TRY(base::MakeFolders(path_.substr(0, path_.rfind('/')), 0755));
  return base::ReplaceFile(path_, EncodeModeFile(mode), 0644);
}

Status ModeKeeper::Change(OperatingMode to) {
  if (to == OperatingMode::kHamiCore) {
    HAMI_TRY(steps_.leave(in_force_));
    HAMI_TRY(Save(to));
  } else {
    HAMI_TRY(Save(to));
  }
  in_force_ = to;
  return {};
}

ModeKeeper::Outcome ModeKeeper::Look(OperatingMode wanted, const std::function<std::vector<std::string>()>& holders) {
  Outcome outcome;
  bool leaving = false;
  if (wanted != in_force_) {
    ModeVerdict verdict = NextMode(in_force_, wanted, holders());
    outcome.refusal = std::move(verdict.refusal);
    if (verdict.mode != in_force_) {
      const OperatingMode from = in_force_;
      const Status changed = Change(verdict.mode);
      outcome.changed = changed.has_value();
      if (!changed) {
        leaving = from != OperatingMode::kHamiCore;
        outcome.refusal = Concat({"the mode does not change from ", ModeName(from), " to ", ModeName(wanted), ": ",
                                  changed.error().message});
      }
    }
  }
  // What is being left, daemons that end or GPUs that wait for a reset, must not be begun anew at each look.
  if (in_force_ == OperatingMode::kHamiCore || leaving) return outcome;
  if (const Status entered = steps_.enter(in_force_); !entered) outcome.trouble = entered.error().message;
  return outcome;
}

}  // namespace hami::plugin
