// SPDX-License-Identifier: Apache-2.0

#include "monitor/probes.h"

#include <utility>

namespace hami::monitor {

net::Response PlainAnswer(int status, std::string text) {
  net::Response response;
  response.status = status;
  response.headers = {{"Content-Type", "text/plain; charset=utf-8"}};
  response.body = std::move(text);
  return response;
}

net::Response Health(std::chrono::steady_clock::duration quiet) {
  if (quiet < kStuck) return PlainAnswer(200, "ok\n");
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(quiet).count();
  return PlainAnswer(503, "no round for " + std::to_string(seconds) + " s\n");
}

net::Response Readiness(const SelfPicture& self, const std::string& node_trouble) {
  if (!node_trouble.empty()) return PlainAnswer(503, node_trouble + "\n");
  if (self.ticks == 0) return PlainAnswer(503, "the first round is not done\n");
  if (!self.folder_problem.empty()) return PlainAnswer(503, self.folder_problem + "\n");
  if (!self.pods_known) return PlainAnswer(503, "the pods of the node are not known yet\n");
  return PlainAnswer(200, "ok\n");
}

}  // namespace hami::monitor
