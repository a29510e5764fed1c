// SPDX-License-Identifier: Apache-2.0
//
// Where the API server is and who we are to it: kubeconfig files, or the service account of the pod we run in. What is
// meant is what client-go takes it for: tokenFile wins over token, a token over a program (exec). Refuses what would
// not work (auth providers, SOCKS proxies, programs that must talk to somebody), saying what to use instead.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/exec_credential.h"
#include "kube/proxy.h"
#include "net/client.h"
#include "net/tls.h"
#include "net/url.h"

namespace hami::kube {

struct Config {
  net::Url server;
  net::ClientTls tls;
  std::string token;       // bearer token; what there is while the file cannot be read
  std::string token_file;  // wins over token; re-read as it changes
  std::string user_name;   // HTTP basic authentication
  std::string password;
  std::optional<ExecPlugin> exec;  // asked where there is neither token nor password
  std::optional<net::Proxy> proxy;
  net::Headers impersonation;  // of every request: as whom it is to be taken
  std::string ns;              // the context's namespace, or the pod's; may be empty
};

struct KubeconfigText {
  std::string text;
  std::string file;  // its name, for errors; relative file names in it are relative to its folder
};

// Several files read as one: for each cluster, user and context the first file that names it wins, and so for the
// current context. CONTEXT, if not empty, is used instead of that.
base::Result<Config> ReadKubeconfig(const std::vector<KubeconfigText>& files, const std::string& context = {});

std::optional<std::string> ProcessEnvironment(const std::string& name);

struct ConfigSources {
  std::string kubeconfig;  // a path that was asked for; nothing else is tried then
  std::string context;
  Environment environment = ProcessEnvironment;
  std::string service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
};

// The kubeconfig asked for; else those of $KUBECONFIG; else $HOME/.kube/config if it exists; else the pod's account.
// Where that names no proxy, the environment may.
base::Result<Config> FindConfig(const ConfigSources& sources);
base::Result<Config> InClusterConfig(const ConfigSources& sources);

}  // namespace hami::kube
