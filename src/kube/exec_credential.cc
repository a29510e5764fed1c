// SPDX-License-Identifier: Apache-2.0

#include "kube/exec_credential.h"

#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"

namespace hami::kube {
namespace {

namespace json = base::json;

// A call that is sent now should not find its token expired when it arrives.
constexpr auto kAhead = std::chrono::seconds(20);
// Between two runs, whatever calls for them: a server that refuses every token is not answered by a storm of programs.
constexpr auto kRest = std::chrono::seconds(5);
constexpr std::size_t kMostShown = 400;

std::string Shown(const std::string& text) { return base::Printable(base::Trim(text).substr(0, kMostShown)); }

const json::object* Member(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

}  // namespace

base::Result<Credential> ReadExecCredential(std::string_view text, std::string_view api_version) {
  const auto read = base::ParseJson(text);
  if (!read || !read->is_object()) return base::Fail("its answer is no JSON object");
  const json::object& answer = read->get_object();
  const std::string version = base::GetString(answer, "apiVersion").value_or("");
  if (base::GetString(answer, "kind") != "ExecCredential" || version != api_version) {
    return base::Fail("its answer is not an ExecCredential of " + std::string(api_version) + " but " +
                      Shown(base::GetString(answer, "kind").value_or("nothing") + " of " + version));
  }
  const json::object* status = Member(answer, "status");
  if (status == nullptr) return base::Fail("its answer has no status");
  Credential credential;
  credential.token = base::GetString(*status, "token").value_or("");
  credential.certificate = base::GetString(*status, "clientCertificateData").value_or("");
  credential.key = base::GetString(*status, "clientKeyData").value_or("");
  if (credential.certificate.empty() != credential.key.empty()) {
    return base::Fail("its answer has clientCertificateData without clientKeyData, or the other way round");
  }
  if (credential.token.empty() && credential.certificate.empty()) {
    return base::Fail("its answer has neither a token nor a client certificate");
  }
  // Of a header: a line break would begin another.
  if (credential.token.find_first_of("\r\n") != std::string::npos) return base::Fail("its token has line breaks");
  if (const auto expires = base::GetString(*status, "expirationTimestamp"); expires && !expires->empty()) {
    credential.expires = ParseTime(*expires);
    if (!credential.expires) return base::Fail("its expirationTimestamp is no time: " + Shown(*expires));
  }
  return credential;
}

base::Result<Credential> AskPlugin(const ExecPlugin& plugin) {
  base::Command command;
  command.words = plugin.words;
  command.environment = plugin.environment;
  command.environment.emplace_back("KUBERNETES_EXEC_INFO", plugin.info);
  const std::string what = plugin.place + "exec " + base::ShellQuote(plugin.words.front()) + ": ";
  const auto ran = base::RunCommand(command);
  const std::string hint = plugin.install_hint.empty() ? "run it by hand to see what it wants" : plugin.install_hint;
  if (!ran) return base::Fail(what + ran.error().message, hint);
  if (ran->status != 0) {
    const std::string said = Shown(ran->err);
    return base::Fail(what + "exit status " + std::to_string(ran->status) + (said.empty() ? "" : ": " + said), hint);
  }
  auto credential = ReadExecCredential(ran->out, plugin.api_version);
  if (!credential) return base::Fail(what + credential.error().message, hint);
  return credential;
}

bool ExecSource::Usable() const { return credential_ && (!credential_->expires || wall_() < *credential_->expires); }

bool ExecSource::Due() const {
  return !credential_ || (credential_->expires && wall_() + kAhead >= *credential_->expires);
}

void ExecSource::Refresh(std::unique_lock<std::mutex>& lock, net::Deadline now) {
  asking_ = true;
  lock.unlock();
  auto answer = ask_();
  lock.lock();
  asking_ = false;
  ask_again_ = std::max(now, net::Clock::now()) + kRest;
  error_.reset();
  if (answer) {
    credential_ = *std::move(answer);
  } else {
    error_ = answer.error();
    base::LogWarning("no new credential: " + error_->message);
  }
  asked_.notify_all();
}

base::Result<Credential> ExecSource::Get(net::Deadline now) {
  std::unique_lock lock(mutex_);
  while (asking_ && !Usable()) asked_.wait(lock);
  // The first that has expired already is asked for again at once, and then rests.
  if (!asking_ && Due() && now >= ask_again_) Refresh(lock, now);
  if (Usable()) return *credential_;
  if (error_) return tl::unexpected(*error_);
  return base::Fail("the credential that was given has expired already", "compare the clocks of the two machines");
}

bool ExecSource::Refused(const Credential& used, net::Deadline now) {
  std::unique_lock lock(mutex_);
  while (asking_) asked_.wait(lock);
  const auto same = [&] { return credential_ && credential_->token == used.token && credential_->key == used.key; };
  if (same() && now >= ask_again_) Refresh(lock, now);
  return !same() && Usable();
}

}  // namespace hami::kube
