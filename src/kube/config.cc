// SPDX-License-Identifier: Apache-2.0

#include "kube/config.h"

#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>

#include "base/fd.h"
#include "base/json.h"
#include "base/strings.h"
#include "kube/base64.h"
#include "kube/proxy.h"

namespace hami::kube {
namespace {

namespace json = base::json;

constexpr std::size_t kMostBytes = 4U << 20U;
constexpr int kMostNodes = 10'000;

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

// What is written in YAML as a program expects it in JSON. LEFT: how many nodes there may be, as aliases of aliases
// become more than any memory holds; the rest is left out.
json::value ToJson(const YAML::Node& node, int& left) {
  if (!node || node.IsNull() || --left < 0) return nullptr;
  if (node.IsSequence()) {
    json::array items;
    for (const YAML::Node& item : node) items.push_back(ToJson(item, left));
    return items;
  }
  if (node.IsMap()) {
    json::object members;
    for (const auto& member : node) {
      if (member.first.IsScalar()) members[member.first.Scalar()] = ToJson(member.second, left);
    }
    return members;
  }
  // Quoted texts stay texts.
  if (node.Tag() == "!") return json::value(node.Scalar());
  bool flag = false;
  if (YAML::convert<bool>::decode(node, flag)) return flag;
  std::int64_t number = 0;
  if (YAML::convert<std::int64_t>::decode(node, number)) return number;
  double real = 0;
  if (YAML::convert<double>::decode(node, real)) return real;
  return json::value(node.Scalar());
}

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
  if (std::string text = Text(entry.node, "proxy-url"); !text.empty()) {
    auto proxy = ReadProxy(std::move(text), Place(entry, "proxy-url") + "proxy-url: ");
    if (!proxy) return tl::unexpected(proxy.error());
    config.proxy = *std::move(proxy);
  }
  auto ca = ReadPem(entry, "certificate-authority");
  if (!ca) return tl::unexpected(ca.error());
  config.tls.ca = *std::move(ca);
  HAMI_TRY(ReadFlag(entry, "insecure-skip-tls-verify", config.tls.insecure));
  config.tls.server_name = Text(entry.node, "tls-server-name");
  return {};
}

// `as-user-extra`: a name of one's own, which stands in a header's name.
std::string HeaderKey(std::string_view key) {
  std::string out;
  for (const char c : base::ToLower(key)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       std::string_view("!#$&'*+-.^_`|~").find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      net::AppendPercentEncoded(out, {&c, 1});
    }
  }
  return out;
}

// A text or a list of texts.
std::vector<std::string> Texts(const YAML::Node& node) {
  std::vector<std::string> texts;
  if (node.IsScalar()) texts.push_back(node.Scalar());
  if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      if (item.IsScalar()) texts.push_back(item.Scalar());
    }
  }
  return texts;
}

base::Status ReadImpersonation(const Entry& entry, Config& config) {
  net::Headers& headers = config.impersonation;
  const std::string user = Text(entry.node, "as");
  if (!user.empty()) headers.emplace_back("Impersonate-User", user);
  if (const std::string uid = Text(entry.node, "as-uid"); !uid.empty()) headers.emplace_back("Impersonate-Uid", uid);
  if (Has(entry.node, "as-groups")) {
    for (std::string& group : Texts(entry.node["as-groups"]))
      headers.emplace_back("Impersonate-Group", std::move(group));
  }
  if (Has(entry.node, "as-user-extra") && entry.node["as-user-extra"].IsMap()) {
    for (const auto& extra : entry.node["as-user-extra"]) {
      if (!extra.first.IsScalar()) continue;
      const std::string name = "Impersonate-Extra-" + HeaderKey(extra.first.Scalar());
      for (std::string& value : Texts(extra.second)) headers.emplace_back(name, std::move(value));
    }
  }
  if (headers.empty() || !user.empty()) return {};
  return base::Fail(Place(entry, "as") + "as-uid, as-groups and as-user-extra need 'as'", "name the user in 'as'");
}

// What the program is told of the cluster.
json::object ClusterInfo(const Entry& cluster, const Config& config, const std::string& ca) {
  json::object info{{"server", Text(cluster.node, "server")}};
  if (!config.tls.server_name.empty()) info["tls-server-name"] = config.tls.server_name;
  if (config.tls.insecure) info["insecure-skip-tls-verify"] = true;
  if (!ca.empty()) info["certificate-authority-data"] = Base64Encode(ca);
  if (const std::string proxy = Text(cluster.node, "proxy-url"); !proxy.empty()) info["proxy-url"] = proxy;
  const YAML::Node extensions = cluster.node["extensions"];
  if (!extensions || !extensions.IsSequence()) return info;
  for (const YAML::Node& extension : extensions) {
    int left = kMostNodes;
    if (Text(extension, "name") == "client.authentication.k8s.io/exec") {
      info["config"] = ToJson(extension["extension"], left);
    }
  }
  return info;
}

base::Status ReadExecWords(const Entry& exec, ExecPlugin& plugin) {
  const std::string command = Text(exec.node, "command");
  if (command.empty()) return base::Fail(plugin.place + "exec: no command");
  // As client-go: a bare name is looked up in $PATH, a path is meant from the kubeconfig's folder.
  plugin.words = {command.find('/') == std::string::npos ? command : Absolute(command, exec.file)};
  if (Has(exec.node, "args")) {
    for (std::string& word : Texts(exec.node["args"])) plugin.words.push_back(std::move(word));
  }
  if (!Has(exec.node, "env")) return {};
  for (const YAML::Node& variable : exec.node["env"]) {
    const std::string name = Text(variable, "name");
    if (name.empty() || name.find('=') != std::string::npos) {
      return base::Fail(Place(exec.file, variable.Mark()) + "exec: a variable needs a name");
    }
    plugin.environment.emplace_back(name, Text(variable, "value"));
  }
  return {};
}

base::Status ReadExec(const Entry& user, const Entry& cluster, Config& config) {
  const Entry exec{user.node["exec"], user.file};
  ExecPlugin plugin;
  plugin.place = Place(user, "exec");
  if (!exec.node.IsMap()) return base::Fail(plugin.place + "exec: must be a mapping");
  plugin.api_version = Text(exec.node, "apiVersion");
  const bool v1 = plugin.api_version == "client.authentication.k8s.io/v1";
  if (!v1 && plugin.api_version != "client.authentication.k8s.io/v1beta1") {
    return base::Fail(Place(exec, "apiVersion") + "exec: apiVersion must be client.authentication.k8s.io/v1 or v1beta1",
                      "renew the kubeconfig with the provider's tool, for instance aws eks update-kubeconfig");
  }
  if (Text(exec.node, "interactiveMode") == "Always") {
    return base::Fail(Place(exec, "interactiveMode") + "exec: a program that must talk to somebody cannot be run here",
                      "use interactiveMode: IfAvailable or Never, a token, a tokenFile or a client certificate");
  }
  HAMI_TRY(ReadExecWords(exec, plugin));
  plugin.install_hint = base::Trim(Text(exec.node, "installHint"));
  bool tells_cluster = false;
  HAMI_TRY(ReadFlag(exec, "provideClusterInfo", tells_cluster));
  json::object spec{{"interactive", false}};
  if (tells_cluster) {
    std::string ca = config.tls.ca.data;
    if (ca.empty() && !config.tls.ca.file.empty()) {
      auto read = base::ReadLinkedFile(config.tls.ca.file, kMostBytes);
      if (!read) return tl::unexpected(read.error());
      ca = *std::move(read);
    }
    spec["cluster"] = ClusterInfo(cluster, config, ca);
  }
  plugin.info = json::serialize(
      json::object{{"apiVersion", plugin.api_version}, {"kind", "ExecCredential"}, {"spec", std::move(spec)}});
  config.exec = std::move(plugin);
  return {};
}

base::Status ReadUser(const Entry& entry, const Entry& cluster, Config& config) {
  if (Has(entry.node, "auth-provider")) {
    return base::Fail(
        Place(entry, "auth-provider") + "users with 'auth-provider' are not supported, as in kubectl since 1.26",
        "use exec with the provider's credential program, a token, a tokenFile or a client certificate");
  }
  HAMI_TRY(ReadImpersonation(entry, config));
  if (Has(entry.node, "exec")) HAMI_TRY(ReadExec(entry, cluster, config));
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
  if (!config.token.empty() || !config.token_file.empty() || !config.user_name.empty()) config.exec.reset();
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
    HAMI_TRY(ReadUser(*found, *cluster, config));
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

namespace {

base::Result<Config> WithoutProxy(const ConfigSources& sources) {
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

}  // namespace

base::Result<Config> FindConfig(const ConfigSources& sources) {
  auto config = WithoutProxy(sources);
  if (!config || config->proxy) return config;
  auto proxy = ProxyOfEnvironment(config->server, sources.environment);
  if (!proxy) return tl::unexpected(proxy.error());
  config->proxy = *std::move(proxy);
  return config;
}

}  // namespace hami::kube
