// SPDX-License-Identifier: Apache-2.0

#include "cluster/command.h"

#include <ctime>
#include <iostream>

#include "base/build_info.h"
#include "base/fd.h"
#include "base/help_page.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/watch.h"
#include "cluster/yaml.h"

namespace hami::cluster {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

constexpr const char* kOverview =
    "Usage: hami cluster top|nodes|cards|pods|why POD|locks|quotas [flags]\n\n"
    "Who has what in a cluster, and why a pod waits. Reads the API server that kubectl talks to, or with --server the\n"
    "page of hami-scheduler. Changes nothing.\n\n"
    "  hami cluster top --watch                    how full each node is, live\n"
    "  hami cluster pods -n team-a                 the pods of a namespace, those that wait first\n"
    "  hami cluster why team-a/train-0             what every node says about it\n"
    "  hami cluster cards -o json | jq '.[].uuid'  for scripts\n\n";

constexpr const char* kEpilogue =
    "\nWithout --server the reasons of pods that wait are worked out here, from what the API server lists; it needs "
    "list\non nodes, pods and resourcequotas. With --server they are those that the scheduler gave.\n"
    "Exit status: 0, 1 when the cluster cannot be read or there is no such pod, 2 for a mistake on the command line.\n";

Message Mistake(const base::Error& error) { return {base::MistakeText("hami cluster", error), kUsage}; }

constexpr std::pair<std::string_view, View> kViews[] = {
    {"top", View::kTop}, {"nodes", View::kNodes}, {"cards", View::kCards},  {"pods", View::kPods},
    {"why", View::kWhy}, {"locks", View::kLocks}, {"quotas", View::kQuotas}};

base::Status TakeWords(const std::vector<std::string>& words, Look& look) {
  std::vector<std::string> names;
  for (const auto& [name, view] : kViews) names.emplace_back(name);
  if (words.empty()) return base::Fail("which view?", base::Join(names, ", "));
  const auto found = std::find(names.begin(), names.end(), words.front());
  if (found == names.end()) {
    const auto near = base::Nearest(words.front(), names);
    return base::Fail("'" + words.front() + "' is no view" + (near ? "; did you mean " + *near + "?" : ""),
                      base::Join(names, ", "));
  }
  look.view = kViews[found - names.begin()].second;
  const std::size_t wanted = look.view == View::kWhy ? 2 : 1;
  if (words.size() < wanted) return base::Fail("no pod is named", "hami cluster why NAMESPACE/NAME");
  if (words.size() > wanted) return base::Fail("'" + words[wanted] + "' is one word too many");
  if (wanted == 2) look.pod = words[1];
  return {};
}

base::Status ShowOnce(const Options& options, base::Screen* screen) {
  const auto document = Fetch(options.source);
  if (!document) return tl::unexpected(document.error());
  const auto selected = Select(*document, options.look);
  if (!selected) return tl::unexpected(selected.error());
  if (options.output == Output::kJson) {
    return base::WriteAll(1, screen == nullptr ? base::Pretty(*selected) : base::Compact(*selected));
  }
  if (options.output == Output::kYaml) {
    return base::WriteAll(1, (screen == nullptr ? "" : "---\n") + Yaml(*selected));
  }
  const auto lines = Lines(*selected, options.look, std::time(nullptr), base::ExamineTerminal(1));
  if (screen != nullptr) return screen->Draw(lines) ? base::Status{} : base::Status(base::Fail("cannot write"));
  return base::WriteAll(1, base::Join(lines, "\n") + "\n");
}

int Carry(const Options& options) {
  base::Status status;
  if (!options.watch) {
    status = ShowOnce(options, nullptr);
  } else {
    base::Screen screen(1, options.output == Output::kTable ? base::Screen::Kind::kWhole : base::Screen::Kind::kInline);
    base::Repeat(options.interval_seconds, [&] {
      status = ShowOnce(options, &screen);
      return status.has_value();
    });
  }
  if (status || (options.watch && base::ReaderIsGone(1))) return 0;
  base::LogError(status.error());
  return kFailed;
}

}  // namespace

void AddSourceFlags(base::FlagSet& flags, Source& source) {
  flags.Group("Where");
  flags.Text("kubeconfig", "FILE", source.kubeconfig,
             "how to reach the API server; without it $KUBECONFIG, ~/.kube/config, or the pod's service account");
  flags.Text("context", "NAME", source.context, "of the kubeconfig, in place of its current one");
  flags.Text("server", "URL", source.server,
             "the page of hami-scheduler (--page-bind-address), in place of the API server: http://localhost:9396");
  flags.Text("token-file", "FILE", source.token_file, "a bearer token for --server");
  flags.Text("ca-file", "FILE", source.ca_file, "whom --server's certificate is signed by (PEM)");
  flags.Text("device-config-file", "FILE", source.device_config_file,
             "the scheduler's device-config.yaml, where resources have other names than HAMi's own; not with --server");
}

std::variant<Options, Message> ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  base::FlagSet flags(base::FlagSet::Dialect::kCommand);
  flags.Group("What");
  flags.Text("namespace", "NS", options.look.ns, "only this one's pods, quotas, and locks");
  flags.Shorthand('n');
  flags.Custom("output", "table|json|yaml", "table",
               base::TakeChoice<Output>(options.output,
                                        {{"table", Output::kTable}, {"json", Output::kJson}, {"yaml", Output::kYaml}}),
               "how the result is written");
  flags.Shorthand('o');
  flags.Bool("watch", options.watch, "look again and again");
  flags.Shorthand('w');
  flags.Custom("interval", "SECONDS", "2", base::TakeNumber(options.interval_seconds, 1, 3600),
               "between two looks of --watch");
  AddSourceFlags(flags, options.source);
  const auto parsed = flags.Parse(arguments);
  if (!parsed) return Mistake(parsed.error());
  if (parsed->help) {
    const base::HelpPage page{"hami cluster", 1, "who has what in a cluster, and why a pod waits", kOverview,
                              kEpilogue};
    return Message{base::Render(page, flags, parsed->form, base::kBuildInfo), 0};
  }
  if (const auto good = TakeWords(parsed->words, options.look); !good) return Mistake(good.error());
  return options;
}

int Main(const std::vector<std::string>& arguments) {
  const auto parsed = ParseOptions(arguments);
  if (const Message* message = std::get_if<Message>(&parsed)) {
    (message->exit_status == 0 ? std::cout : std::cerr) << message->text << std::flush;
    return message->exit_status;
  }
  return Carry(std::get<Options>(parsed));
}

}  // namespace hami::cluster
