// SPDX-License-Identifier: Apache-2.0
//
// Tells when files may have changed: whenever something appears, goes or is finished being written in their folders,
// which is also how the link of a mounted ConfigMap is swapped. It says when to look, never what is there, and it may
// miss what happens behind links to elsewhere: whoever must know looks now and then by himself.

#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "net/time.h"

namespace hami::plugin {

class FileWatch {
 public:
  explicit FileWatch(const std::vector<std::string>& files);

  // Until there is news (true), SPAN is over, or STOP can be read.
  bool Wait(net::Duration span, int stop);
  // Why nothing can be heard, as of the last Wait; each Wait tries again. Empty: what happens is heard.
  const std::string& trouble() const { return trouble_; }

 private:
  void Watch();

  std::vector<std::string> folders_;
  base::Fd notify_;
  std::string trouble_;
};

}  // namespace hami::plugin
