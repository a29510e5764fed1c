// SPDX-License-Identifier: Apache-2.0

#include "kube/config.h"

#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>

#include "base/fd.h"
#include "base/strings.h"
#include "kube/base64.h"

namespace hami::kube {
namespace {

constexpr std::size_t kMostBytes = 4U << 20U;

struct Document {
  YAML::Node root;
  std::string file;
};

// An entry of a named list and the file it came from.
struct Entry {
  YAML::Node node;
  std::string file;
};

// "FILE:LINE: ", lines from 1.
std::string Place(const std::string& file, const YAML::Mark& mark) {
  return file + ":" + std::to_string(mark.is_null() ? 1 : mark.line + 1) + ": ";
}

// Where KEY stands in ENTRY.
std::string Place(const Entry& entry, const char* key) {
  return Place(entry.file, (entry.node[key] ? entry.node[key] : entry.node).Mark());
}

// Of KubeconfigTexts or Documents.
template <typename File>
std::string Names(const std::vector<File>& files) {
  std::vector<std::string> names;
  for (const File& file : files) names.push_back(file.file);
  return base::Join(names, ", ");
}

std::string Text(const YAML::Node& node, const char* key) {
  if (!node.IsMap()) return {};
  const YAML::Node value = node[key];
  return value && value.IsScalar() ? value.Scalar() : std::string();
}

// With a value; null is what kubectl takes for nothing said.
bool Has(const YAML::Node& node, const char* key) { return node[key] && !node[key].IsNull(); }

// Finds NAME in the list LIST ("clusters") of all files and gives its PART ("cluster").
base::Result<Entry> Find(const std::vector<Document>& documents, const char* list, const char* part,
                         const std::string& name) {
  for (const Document& document : documents) {
    const YAML::Node items = document.root[list];
    if (!items || !items.IsSequence()) continue;
    for (const YAML::Node& item : items) {
      if (!item.IsMap() || Text(item, "name") != name) continue;
      const YAML::Node found = item[part];
      // `user:` with nothing behind it is a user without credentials.
      if (!found || found.IsNull()) return Entry{YAML::Node(YAML::NodeType::Map), document.file};
      if (!found.IsMap()) break;
      return Entry{found, document.file};
    }
  }
  return base::Fail(Names(documents) + ": no " + part + " named '" + base::Printable(name) + "'");
}

// PATH as it is meant in FILE.
std::string Absolute(const std::string& path, const std::string& file) {
  const std::size_t slash = file.rfind('/');
  if (path.empty() || path.front() == '/' || slash == std::string::npos) return path;
  return file.substr(0, slash + 1) + path;
}

base::Result<net::Pem> ReadPem(const Entry& entry, const std::string& key) {
  net::Pem pem;
  pem.file = Absolute(Text(entry.node, key.c_str()), entry.file);
  const std::string data_key = key + "-data";
  const std::string data = Text(entry.node, data_key.c_str());
  if (data.empty()) return pem;
  auto decoded = Base64Decode(data);
  if (!decoded) return base::Fail(Place(entry, data_key.c_str()) + data_key + " is not valid base64");
  pem.file = data_key + " of " + entry.file;
  pem.data = *std::move(decoded);
  return pem;
}

base::Status ReadFlag(const Entry& entry, const char* key, bool& out) {
  if (!Has(entry.node, key)) return {};
  const YAML::Node value = entry.node[key];
  if (value.IsScalar() && YAML::convert<bool>::decode(value, out)) return {};
  return base::Fail(Place(entry, key) + key + ": must be true or false");
}

base::Status ReadCluster(const Entry& entry, Config& config) {
  auto server = net::ParseUrl(Text(entry.node, "server"));
  if (!server) return base::Fail(Place(entry, "server") + "server: " + server.error().message);
  config.server = *std::move(server);
  if (!Text(entry.node, "proxy-url").empty()) {
    return base::Fail(Place(entry, "proxy-url") + "proxy-url is not supported");
  }
  auto ca = ReadPem(entry, "certificate-authority");
  if (!ca) return tl::unexpected(ca.error());
  config.tls.ca = *std::move(ca);
  HAMI_TRY(ReadFlag(entry, "insecure-skip-tls-verify", config.tls.insecure));
  config.tls.server_name = Text(entry.node, "tls-server-name");
  return {};
}

base::Status ReadUser(const Entry& entry, Config& config) {
  for (const char* key : {"exec", "auth-provider"}) {
    if (Has(entry.node, key)) {
      return base::Fail(Place(entry, key) + "users with '" + key + "' are not supported",
                        "use a client certificate, a token or a tokenFile, for instance of a service account");
    }
  }
  for (const char* key : {"as", "as-uid", "as-groups", "as-user-extra"}) {
    if (Has(entry.node, key)) return base::Fail(Place(entry, key) + "impersonation ('" + key + "') is not supported");
  }
  auto certificate = ReadPem(entry, "client-certificate");
  if (!certificate) return tl::unexpected(certificate.error());
  auto key = ReadPem(entry, "client-key");
  if (!key) return tl::unexpected(key.error());
  if (certificate->empty() != key->empty()) {
    return base::Fail(Place(entry, certificate->empty() ? "client-key" : "client-certificate") +
                      "client-certificate and client-key come together or not at all");
  }
  config.tls.certificate = *std::move(certificate);
  config.tls.key = *std::move(key);
  config.token = Text(entry.node, "token");
  config.token_file = Absolute(Text(entry.node, "tokenFile"), entry.file);
  config.user_name = Text(entry.node, "username");
  config.password = Text(entry.node, "password");
  return {};
}

base::Result<std::vector<Document>> Parse(const std::vector<KubeconfigText>& files) {
  std::vector<Document> documents;
  for (const KubeconfigText& file : files) {
    try {
      YAML::Node root = YAML::Load(file.text);
      if (!root.IsNull() && !root.IsMap()) {
        return base::Fail(Place(file.file, root.Mark()) + "a kubeconfig must be a mapping");
      }
      documents.push_back({root, file.file});
    } catch (const YAML::Exception& exception) {
      return base::Fail(Place(file.file, exception.mark) + "not valid YAML: " + exception.msg);
    }
  }
  return documents;
}

base::Result<Config> Assemble(const std::vector<KubeconfigText>& files, std::string context) {
  const auto documents = Parse(files);
  if (!documents) return tl::unexpected(documents.error());
  for (const Document& document : *documents) {
    if (context.empty()) context = Text(document.root, "current-context");
  }
  if (context.empty()) {
    return base::Fail(Names(*documents) + ": no current-context", "choose one: kubectl config use-context NAME");
  }
  const auto chosen = Find(*documents, "contexts", "context", context);
  if (!chosen) return tl::unexpected(chosen.error());
  const auto cluster = Find(*documents, "clusters", "cluster", Text(chosen->node, "cluster"));
  if (!cluster) return tl::unexpected(cluster.error());
  Config config;
  HAMI_TRY(ReadCluster(*cluster, config));
  if (const std::string user = Text(chosen->node, "user"); !user.empty()) {
    const auto found = Find(*documents, "users", "user", user);
    if (!found) return tl::unexpected(found.error());
    HAMI_TRY(ReadUser(*found, config));
  }
  config.ns = Text(chosen->node, "namespace");
  return config;
}

base::Result<KubeconfigText> ReadOne(const std::string& path) {
  auto text = base::ReadLinkedFile(path, kMostBytes);
  if (!text) return tl::unexpected(text.error());
  return KubeconfigText{*std::move(text), path};
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

base::Result<Config> FromFiles(const std::vector<std::string>& paths, const std::string& context) {
  std::vector<KubeconfigText> files;
  for (const std::string& path : paths) {
    auto file = ReadOne(path);
    if (!file) return tl::unexpected(file.error());
    files.push_back(*std::move(file));
  }
  return ReadKubeconfig(files, context);
}

}  // namespace

base::Result<Config> ReadKubeconfig(const std::vector<KubeconfigText>& files, const std::string& context) {
  try {
    return Assemble(files, context);
  } catch (const YAML::Exception& exception) {
    return base::Fail(Names(files) + ": " + exception.msg);
  }
}

std::optional<std::string> ProcessEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

base::Result<Config> InClusterConfig(const ConfigSources& sources) {
  const auto host = sources.environment("KUBERNETES_SERVICE_HOST");
  const auto port = sources.environment("KUBERNETES_SERVICE_PORT");
  const std::string token_file = sources.service_account + "/token";
  if (!host || host->empty() || !port || port->empty() || !Exists(token_file)) {
    return base::Fail("no way to the API server: no kubeconfig, and not in a pod with a service account",
                      "set KUBECONFIG, or run in the cluster");
  }
  const bool v6 = host->find(':') != std::string::npos;
  auto server = net::ParseUrl("https://" + (v6 ? "[" + *host + "]" : *host) + ":" + *port);
  if (!server) return tl::unexpected(server.error());
  Config config;
  config.server = *std::move(server);
  config.token_file = token_file;
  config.tls.ca.file = sources.service_account + "/ca.crt";
  const auto ns = base::ReadLinkedFile(sources.service_account + "/namespace", 4096);
  if (ns) config.ns = base::Trim(*ns);
  return config;
}

base::Result<Config> FindConfig(const ConfigSources& sources) {
  if (!sources.kubeconfig.empty()) return FromFiles({sources.kubeconfig}, sources.context);
  std::vector<std::string> paths;
  for (const std::string& path : base::Split(sources.environment("KUBECONFIG").value_or(""), ':')) {
    // As kubectl: names in the list that do not exist are passed over.
    if (!path.empty() && Exists(path)) paths.push_back(path);
  }
  if (!paths.empty()) return FromFiles(paths, sources.context);
  const std::string home = sources.environment("HOME").value_or("") + "/.kube/config";
  if (Exists(home)) return FromFiles({home}, sources.context);
  auto config = InClusterConfig(sources);
  const std::string listed = sources.environment("KUBECONFIG").value_or("");
  if (config || listed.empty()) return config;
  return base::Fail("no way to the API server: KUBECONFIG=" + base::Printable(listed) +
                        " names no file that exists, there is no " + home +
                        ", and this is no pod with a service account",
                    "correct KUBECONFIG");
}

}  // namespace hami::kube
