// SPDX-License-Identifier: Apache-2.0

#include "cli/demo_verdict.h"

#include <sys/wait.h>

#include <csignal>

#include "base/units.h"

namespace hami::cli {
namespace {

std::string EndText(const std::optional<int>& status) {
  if (!status) return "did not end";
  if (WIFSIGNALED(*status)) return "ended by signal " + std::to_string(WTERMSIG(*status));
  return "ended with status " + std::to_string(WEXITSTATUS(*status));
}

bool EndedWell(const std::optional<int>& status) { return status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0; }

bool WasKilled(const std::optional<int>& status) {
  return status && WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL;
}

void CheckLimit(const Evidence& evidence, std::vector<std::string>& faults) {
  const auto over = [&](std::uint64_t bytes, const char* whose) {
    if (bytes <= evidence.limit_bytes) return;
    faults.push_back(std::to_string(bytes - evidence.limit_bytes) + " bytes over the limit in " + whose + " account");
  };
  over(evidence.peak_in_share, "the share's");
  over(evidence.peak_on_gpu, "the GPU's");
  // A demo in which nothing was used would prove nothing.
  if (evidence.peak_in_share == 0) faults.emplace_back("the share's account shows no use at all");
  if (evidence.peak_on_gpu == 0) faults.emplace_back("the GPU's account shows no use at all");
}

void CheckViews(const Evidence& evidence, std::vector<std::string>& faults) {
  for (const char* key : {"cuda_total", "nvml_total"}) {
    const auto seen = evidence.report.find(key);
    if (seen == evidence.report.end()) {
      faults.push_back(std::string("the program did not report its ") + key);
    } else if (seen->second != evidence.limit_bytes) {
      faults.push_back(std::string(key) + " was " + std::to_string(seen->second) + ", not the limit");
    }
  }
}

}  // namespace

Verdict Judge(const Evidence& evidence) {
  Verdict verdict;
  CheckLimit(evidence, verdict.faults);
  CheckViews(evidence, verdict.faults);
  if (evidence.must_be_killed) {
    if (!WasKilled(evidence.wait_status))
      verdict.faults.push_back("should have been killed, but " + EndText(evidence.wait_status));
    if (evidence.held_when_killed == 0) verdict.faults.emplace_back("held nothing when it was killed");
    if (!evidence.back_after_ms) verdict.faults.emplace_back("its memory did not come back");
    verdict.summary = "killed";
    if (evidence.back_after_ms) {
      verdict.summary += ", " + base::FormatBytes(evidence.held_when_killed) + " back after " +
                         std::to_string(*evidence.back_after_ms) + " ms";
    }
    return verdict;
  }
  if (!EndedWell(evidence.wait_status)) verdict.faults.push_back(EndText(evidence.wait_status));
  if (evidence.must_be_refused && evidence.refusals == 0) {
    verdict.faults.emplace_back("asked for more than its limit and was never refused");
  }
  if (!evidence.must_be_refused && evidence.refusals != 0) {
    verdict.faults.emplace_back("was refused although it stayed within its limit");
  }
  verdict.summary =
      evidence.refusals == 0 ? "never refused" : "refused " + std::to_string(evidence.refusals) + " times";
  if (evidence.most_processes > 1) verdict.summary += ", " + std::to_string(evidence.most_processes) + " processes";
  return verdict;
}

}  // namespace hami::cli
