// SPDX-License-Identifier: Apache-2.0

#include "scheduler/extender_body.h"

#include <algorithm>
#include <unordered_map>

#include "base/json.h"
#include "base/json_cursor.h"
#include "base/strings.h"
#include "device/lists.h"
#include "kube/scanner.h"
#include "kube/views.h"

namespace hami::scheduler {
namespace {

namespace json = base::json;

constexpr std::size_t kUsualNameBytes = 16;        // of a name in the request, quotation marks and comma included
constexpr std::size_t kMostNamesExpected = 16384;  // before they are seen
constexpr std::size_t kUsualAnswerBytes = 256;
constexpr int kBestScore = 10;  // kube-scheduler's MaxExtenderPriority

tl::unexpected<base::Error> Broken(std::string_view what, const base::JsonCursor& cursor) {
  return base::Fail(base::Concat({what, ": not JSON at byte ", std::to_string(cursor.at())}));
}

tl::unexpected<base::Error> NoObject(std::string_view text, const base::JsonCursor& cursor) {
  const std::string_view kind = base::KindOfJson(text);
  if (kind.empty()) return Broken("request", cursor);
  return base::Fail(base::Concat({"request: a JSON object is wanted, this is ", kind}));
}

bool SameKey(std::string_view a, std::string_view lower) {
  return a.size() == lower.size() && std::equal(a.begin(), a.end(), lower.begin(), [](char x, char y) {
           return (x >= 'A' && x <= 'Z' ? static_cast<char>(x - 'A' + 'a') : x) == y;
         });
}

// Names with escapes or beyond ASCII: nobody's nodes, but JSON all the same.
base::Status DecodeNames(FilterBody& body) {
  const auto document = base::ParseJson(body.names_text);
  if (!document) return tl::unexpected(document.error());
  const json::array* list = document->if_array();
  if (list == nullptr) return base::Fail("NodeNames is not a list");
  for (const json::value& item : *list) {
    if (!item.is_string()) return base::Fail("NodeNames holds what is no string");
    body.decoded.emplace_back(item.get_string().data(), item.get_string().size());
  }
  body.names.assign(body.decoded.begin(), body.decoded.end());
  return {};
}

// The names, which are most of a request, in one walk.
base::Status ReadNames(std::string_view text, base::JsonCursor& cursor, FilterBody& body) {
  body.names.clear();
  body.decoded.clear();
  body.names_text = {};
  std::string_view other;
  if (!cursor.Take('[')) {
    if (!cursor.TakeValue(other)) return Broken("NodeNames", cursor);
    return other == "null" ? base::Status() : base::Fail("NodeNames is not a list");
  }
  const std::size_t begin = cursor.at() - 1;
  bool plain = true;
  body.names.reserve(std::min((text.size() - begin) / kUsualNameBytes, kMostNamesExpected));
  if (!cursor.Take(']')) {
    cursor.TakePlainStrings(body.names, kMostNames);
    do {
      if (body.names.size() >= kMostNames) {
        return base::Fail(base::Concat({"NodeNames holds more than ", std::to_string(kMostNames), " names"}));
      }
      bool plain_name = true;
      if (!cursor.TakeString(body.names.emplace_back(), plain_name)) return Broken("NodeNames", cursor);
      plain = plain && plain_name;
    } while (cursor.Take(','));
    if (!cursor.Take(']')) return Broken("NodeNames", cursor);
  }
  body.names_text = text.substr(begin, cursor.at() - begin);
  return plain ? base::Status() : DecodeNames(body);
}

// Whatever an error quotes, the answer is JSON in UTF-8.
void AppendText(std::string& out, std::string_view text) {
  if (base::IsPlain(text)) return base::AppendJsonString(out, text);
  base::AppendJsonString(out, base::Printable(text));
}

template <typename Each>
base::Status ForEachNode(std::string_view nodes, Each each) {
  kube::ListScanner scanner([&](std::string_view item) -> kube::Status {
    json::monotonic_resource memory;
    const auto node = kube::ParseDocument(item, &memory);
    if (!node) return tl::unexpected(node.error());
    auto view = kube::ReadNode(*node);
    if (!view) return tl::unexpected(view.error());
    each(item, *view);
    return {};
  });
  if (const auto fed = scanner.Feed(nodes); !fed) return base::Fail("Nodes: " + fed.error().message);
  if (const auto end = scanner.Finish(); !end) return base::Fail("Nodes: " + end.error().message);
  return {};
}

base::Status TakeCandidate(base::JsonCursor& cursor, FilterBody& body) {
  body.pod.reset();
  const char next = cursor.Next();
  body.pod_is_object = next == '{';
  std::string_view null;
  const bool taken = next == 'n' ? cursor.TakeValue(null) : device::TakePod(cursor, {}, body.pod.emplace());
  return taken ? base::Status() : Broken("request", cursor);
}

}  // namespace

base::Result<FilterBody> ReadFilterBody(std::string_view text) {
  FilterBody body;
  base::JsonCursor cursor(text);
  if (!cursor.Take('{')) return NoObject(text, cursor);
  if (!cursor.Take('}')) {
    do {
      std::string_view key;
      std::string_view value;
      bool plain = false;
      if (!cursor.TakeString(key, plain) || !cursor.Take(':')) return Broken("request", cursor);
      if (SameKey(key, "nodenames")) {
        HAMI_TRY(ReadNames(text, cursor, body));
        continue;
      }
      if (SameKey(key, "pod")) {
        HAMI_TRY(TakeCandidate(cursor, body));
        continue;
      }
      if (!cursor.TakeValue(value)) return Broken("request", cursor);
      if (value == "null") value = {};
      if (SameKey(key, "nodenametometavictims") || SameKey(key, "nodenametovictims")) {
        if (!value.empty()) body.victims = value;
        continue;
      }
      if (!SameKey(key, "nodes")) continue;
      if (!value.empty() && value.front() != '{') return base::Fail("Nodes is not a list object");
      body.nodes = value;
    } while (cursor.Take(','));
    if (!cursor.Take('}')) return Broken("request", cursor);
  }
  if (!cursor.AtEnd()) return Broken("request", cursor);
  return body;
}

base::Result<std::vector<sched::SimulatedNode>> ReadSimulatedNodes(std::string_view nodes) {
  std::vector<sched::SimulatedNode> found;
  HAMI_TRY(ForEachNode(nodes, [&](std::string_view, kube::Node& node) {
    kube::Metadata& metadata = node.metadata;
    std::string type = metadata.labels[kInstanceType];
    found.push_back(
        {std::move(metadata.name), std::move(metadata.annotations), std::move(node.capacity), std::move(type)});
  }));
  return found;
}

std::string FindNodeText(std::string_view nodes, std::string_view name) {
  std::string found;
  const base::Status read = ForEachNode(nodes, [&](std::string_view item, const kube::Node& node) {
    if (found.empty() && node.metadata.name == name) found = item;
  });
  return read ? found : std::string();
}

base::Result<std::vector<MetaVictims>> ReadVictims(std::string_view text) {
  std::vector<MetaVictims> nodes;
  if (text.empty()) return nodes;
  const auto document = base::ParseJson(text);
  if (!document) return tl::unexpected(document.error());
  const json::object* by_node = document->if_object();
  if (by_node == nullptr) return base::Fail("the victims are no object");
  for (const auto& [node, value] : *by_node) {
    MetaVictims& victims = nodes.emplace_back();
    victims.node = std::string(node);
    const json::object* one = value.if_object();
    const json::value* pods = one == nullptr ? nullptr : one->if_contains("Pods");
    if (const json::value* budgets = one == nullptr ? nullptr : one->if_contains("NumPDBViolations")) {
      if (const std::int64_t* number = budgets->if_int64()) victims.budgets = *number;
    }
    if (pods == nullptr || !pods->is_array()) continue;
    for (const json::value& item : pods->get_array()) {
      const json::object* pod = item.if_object();
      const json::value* metadata = pod == nullptr ? nullptr : pod->if_contains("metadata");
      const json::object* whole = metadata == nullptr ? nullptr : metadata->if_object();
      const auto uid = pod == nullptr
                           ? std::nullopt
                           : (whole == nullptr ? base::GetString(*pod, "UID") : base::GetString(*whole, "uid"));
      if (!uid) return base::Fail(base::Concat({"a victim on node ", base::Printable(victims.node), " has no uid"}));
      victims.uids.push_back(*uid);
    }
  }
  return nodes;
}

std::string WriteVictims(const std::vector<MetaVictims>& nodes) {
  std::string out = R"({"NodeNameToMetaVictims":{)";
  for (const MetaVictims& one : nodes) {
    if (&one != nodes.data()) out += ',';
    AppendText(out, one.node);
    out += R"(:{"Pods":[)";
    for (const std::string& uid : one.uids) {
      out += &uid == one.uids.data() ? R"({"UID":)" : R"(,{"UID":)";
      AppendText(out, uid);
      out += '}';
    }
    out += base::Concat({R"(],"NumPDBViolations":)", std::to_string(one.budgets), "}"});
  }
  return out += "}}";
}

base::Result<BindRequest> ReadBindBody(std::string_view body) {
  BindRequest request;
  base::JsonCursor cursor(body);
  if (cursor.Next() != '{') return NoObject(body, cursor);
  const bool taken = cursor.TakeObject([&](std::string_view key, bool plain) {
    std::string_view value;
    if (cursor.Next() != '"') return cursor.TakeValue(value);
    bool plain_value = false;
    if (!cursor.TakeString(value, plain_value)) return false;
    const std::string decoded = plain ? std::string() : base::DecodeJsonString(key);
    if (!plain) key = decoded;
    for (const auto& [name, field] : {std::pair("podname", &request.name), std::pair("podnamespace", &request.ns),
                                      std::pair("poduid", &request.uid), std::pair("node", &request.node)}) {
      if (SameKey(key, name)) *field = plain_value ? std::string(value) : base::DecodeJsonString(value);
    }
    return true;
  });
  if (!taken || !cursor.AtEnd()) return Broken("request", cursor);
  for (const auto& [field, value] : {std::pair("PodName", &request.name), std::pair("PodNamespace", &request.ns),
                                     std::pair("PodUID", &request.uid), std::pair("Node", &request.node)}) {
    if (value->empty()) return base::Fail(base::Concat({"extender binding args missing ", field}));
  }
  return request;
}

std::string WriteFilterResult(const FilterResult& result) {
  std::string out = R"({"Nodes":)";
  out.reserve(kUsualAnswerBytes);
  out += result.nodes.empty() ? "null" : result.nodes;
  out += R"(,"NodeNames":)";
  out += result.node_names.empty() ? "null" : result.node_names;
  out += R"(,"FailedNodes":)";
  if (result.failed == nullptr) {
    out += "null";
  } else {
    out += '{';
    for (const sched::NodeReason& failure : *result.failed) {
      if (&failure != result.failed->data()) out += ',';
      AppendText(out, failure.node);
      out += ':';
      AppendText(out, failure.reason);
    }
    out += '}';
  }
  out += R"(,"FailedAndUnresolvableNodes":null,"Error":)";
  AppendText(out, result.error);
  return out += '}';
}

std::string WriteBindResult(std::string_view error) {
  std::string out = R"({"Error":)";
  AppendText(out, error);
  return out += '}';
}

std::string OneName(std::string_view name) {
  std::string out = "[";
  AppendText(out, name);
  return out += ']';
}

std::string NamesOf(const std::vector<sched::NodeScore>& nodes) {
  std::string out = "[";
  for (const sched::NodeScore& one : nodes) {
    if (&one != nodes.data()) out += ',';
    AppendText(out, one.node);
  }
  return out += ']';
}

std::string WritePriorities(std::span<const std::string_view> names, const std::vector<sched::NodeScore>& offered) {
  std::unordered_map<std::string_view, int> scores;
  const float span = offered.empty() ? 0 : offered.back().score - offered.front().score;
  for (const sched::NodeScore& one : offered) {
    const float rest = span == 0 ? 0 : (offered.back().score - one.score) / span;
    const bool first = &one == offered.data();
    scores.emplace(one.node, first ? kBestScore : static_cast<int>(static_cast<float>(kBestScore - 1) * rest));
  }
  std::string out = "[";
  for (const std::string_view& name : names) {
    if (&name != names.data()) out += ',';
    out += R"({"Host":)";
    AppendText(out, name);
    const auto found = scores.find(name);
    out += base::Concat({R"(,"Score":)", std::to_string(found == scores.end() ? 0 : found->second), "}"});
  }
  return out += ']';
}

}  // namespace hami::scheduler
