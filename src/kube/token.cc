// SPDX-License-Identifier: Apache-2.0

#include "kube/token.h"

#include "base/fd.h"
#include "base/strings.h"

namespace hami::kube {
namespace {

constexpr auto kFresh = std::chrono::seconds(10);
constexpr std::size_t kMostBytes = 1U << 20U;

}  // namespace

base::Status TokenSource::Read(net::Deadline now) {
  fresh_until_ = now + kFresh;
  const auto text = base::ReadLinkedFile(file_, kMostBytes);
  if (!text) return tl::unexpected(text.error());
  const std::string_view token = base::Trim(*text);
  if (token.empty()) return base::Fail("the token file " + file_ + " is empty");
  cached_ = token;
  return {};
}

base::Result<std::string> TokenSource::Get(net::Deadline now) {
  if (file_.empty()) return fixed_;
  const std::scoped_lock lock(mutex_);
  if (now >= fresh_until_ || cached_.empty()) {
    const auto read = Read(now);
    if (!read && cached_.empty() && fixed_.empty()) return tl::unexpected(read.error());
  }
  return cached_.empty() ? fixed_ : cached_;
}

bool TokenSource::Refused(const std::string& token, net::Deadline now) {
  if (file_.empty()) return false;
  const std::scoped_lock lock(mutex_);
  return Read(now) && cached_ != token;
}

}  // namespace hami::kube
