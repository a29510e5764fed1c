// SPDX-License-Identifier: Apache-2.0
//
// Which containers have other limits than their grant's because this program gave them: on disk, for when the wish goes
// while no monitor runs. A region that merely differs from the grant says nothing: the pod may have asked for less
// itself. A name is written before limits are, and taken away after they were brought back, so that a death in between
// costs a needless look. The file is a list of names, a line each; it lies where no tenant writes. One that can not be
// read counts as empty.

#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hami::monitor {

// Lines that are no container's name are left out.
std::set<std::string> ParseResized(std::string_view text);

class Resized {
 public:
  explicit Resized(std::string path);

  bool Has(const std::string& name) const { return names_.contains(name); }
  // The outcome is that of the writing; what is remembered by this process changes in any case.
  base::Status Add(const std::string& name);
  base::Status Remove(const std::string& name);
  base::Status Keep(const std::function<bool(const std::string& name)>& wanted);

 private:
  base::Status Write() const;

  const std::string path_;
  std::set<std::string> names_;
};

}  // namespace hami::monitor
