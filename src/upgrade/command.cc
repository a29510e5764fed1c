// SPDX-License-Identifier: Apache-2.0

#include "upgrade/command.h"

#include <iostream>

#include "base/build_info.h"
#include "base/flags.h"
#include "base/help_page.h"
#include "base/log.h"
#include "base/strings.h"

namespace hami::upgrade {
namespace {

constexpr int kUsage = 2;

constexpr const char* kOverview =
    "Usage: hami upgrade [scheduler | node NAME...] [--back] [--apply] [flags]\n\n"
    "Takes a cluster over from HAMi, step by step: its scheduler, then its plugin, node by node. Both releases are\n"
    "installed. Running pods keep what they have. Without --apply it says what it would do and writes nothing.\n\n"
    "  hami upgrade                          what is where\n"
    "  hami upgrade scheduler                what would be done; --apply does it\n"
    "  hami upgrade node gpu-1 gpu-2 --apply\n"
    "  hami upgrade node gpu-1 --back --apply\n"
    "  hami upgrade scheduler --back --apply\n";

constexpr const char* kEpilogue =
    "\nWhat was interrupted goes on where it stopped when it is run again.\n"
    "Needs get and patch on Deployments, DaemonSets, MutatingWebhookConfigurations and nodes, and list on nodes and "
    "pods.\n"
    "Exit status: 0 done, or said; 1 it cannot be done, with the reason; 2 a mistake on the command line.\n";

Message Mistake(const base::Error& error) { return {base::MistakeText("hami upgrade", error), kUsage}; }

// "NAMESPACE/RELEASE", and what the chart makes of the release's name.
base::FlagSet::Take TakeRelease(std::string& ns, std::string& name) {
  return [&ns, &name](const std::string& text) -> base::Status {
    const std::size_t slash = text.find('/');
    if (slash == std::string::npos || slash == 0 || slash + 1 == text.size() ||
        text.find('/', slash + 1) != std::string::npos) {
      return base::Fail("'" + text + "' is not NAMESPACE/RELEASE", "helm list -A shows both");
    }
    ns = text.substr(0, slash);
    name = text.substr(slash + 1);
    if (name.find("hami") == std::string::npos) name += "-hami";
    return {};
  };
}

void AddFlags(base::FlagSet& flags, Options& options) {
  flags.Group("What");
  flags.Custom("hami", "NAMESPACE/RELEASE", "kube-system/hami", TakeRelease(options.names.hami_ns, options.names.hami),
               "HAMi's release");
  flags.Custom("ours", "NAMESPACE/RELEASE", "kube-system/hami-cpp",
               TakeRelease(options.names.ours_ns, options.names.ours), "the release of hami-cpp");
  flags.Bool("back", options.back, "the other way: HAMi's again");
  flags.Bool("apply", options.apply, "do it; without it nothing is written");
  flags.Custom("replicas", "N", "2", base::TakeNumber(options.replicas, 1, 9),
               "of a scheduler that never ran; one that did gets what it had");
  flags.Custom(
      "wait", "SECONDS", "300",
      [&options](const std::string& text) -> base::Status {
        int seconds = 0;
        HAMI_TRY(base::TakeNumber(seconds, 1, 86'400)(text));
        options.wait = std::chrono::seconds(seconds);
        return {};
      },
      "for each thing that is waited for");
  flags.Group("Other");
  flags.Text("kubeconfig", "FILE", options.kubeconfig,
             "how to reach the API server; without it $KUBECONFIG, ~/.kube/config, or the pod's service account");
  flags.Custom(
      "output", "text|json", "text",
      [&options](const std::string& text) -> base::Status {
        if (text != "text" && text != "json") return base::Fail("must be text or json");
        options.json = text == "json";
        return {};
      },
      "how the result is written");
  flags.Shorthand('o');
}

base::Status TakeWords(const std::vector<std::string>& words, Options& options) {
  if (words.empty()) {
    if (options.apply || options.back)
      return base::Fail("scheduler or node, which one?", "hami upgrade --help shows examples");
    return {};
  }
  if (words.front() == "scheduler") {
    options.what = Options::What::kScheduler;
    if (words.size() > 1) return base::Fail("'" + words[1] + "' is one word too many");
    return {};
  }
  if (words.front() != "node") return base::Fail("'" + words.front() + "' is neither scheduler nor node");
  options.what = Options::What::kNodes;
  options.nodes.assign(words.begin() + 1, words.end());
  if (options.nodes.empty()) return base::Fail("no node is named", "hami upgrade lists those with a plugin");
  return {};
}

std::vector<Plan> PlansOf(const Options& options) {
  if (options.what == Options::What::kScheduler) {
    return {[&options](const Cluster& cluster) { return PlanScheduler(cluster, options.replicas, options.back); }};
  }
  std::vector<Plan> plans;
  for (const std::string& node : options.nodes) {
    plans.emplace_back([&options, node](const Cluster& cluster) { return PlanNode(cluster, node, options.back); });
  }
  return plans;
}

base::Status Preview(kube::Client& client, const Options& options) {
  const auto cluster = Read(client, options.names);
  if (!cluster) return tl::unexpected(cluster.error());
  json::array all;
  for (const Plan& plan : PlansOf(options)) {
    const auto steps = plan(*cluster);
    if (!steps) return tl::unexpected(steps.error());
    for (const Step& step : *steps) {
      const bool waits = step.kind != Step::Kind::kPatch;
      if (waits && Holds(step, *cluster)) continue;
      if (!options.json) std::cout << "would " << step.text << "\n";
      all.push_back(json::object{{"step", step.text}, {"writes", !waits}, {"patch", step.patch}});
    }
  }
  if (options.json) {
    std::cout << base::Pretty(json::object{{"applied", false}, {"steps", all}});
  } else {
    std::cout << (all.empty() ? "nothing is left to do\n" : "nothing was written; --apply does it\n");
  }
  return {};
}

base::Status Run(const Options& options) {
  kube::ConfigSources sources;
  sources.kubeconfig = options.kubeconfig;
  const auto config = kube::FindConfig(sources);
  if (!config) return tl::unexpected(config.error());
  const auto client = kube::Client::Make(*config, {.user_agent = "hami-upgrade"});
  if (!client) return tl::unexpected(client.error());
  if (options.what == Options::What::kSurvey) {
    const auto cluster = Read(**client, options.names);
    if (!cluster) return tl::unexpected(cluster.error());
    std::cout << (options.json ? base::Pretty(Survey(*cluster)) : SurveyText(*cluster));
    return {};
  }
  if (!options.apply) return Preview(**client, options);
  json::array done;
  for (const Plan& plan : PlansOf(options)) {
    HAMI_TRY(Carry(**client, options.names, plan, options.wait, [&](const Step& step) {
      if (!options.json) std::cout << step.text << std::endl;
      done.push_back(json::object{{"step", step.text}, {"writes", step.kind == Step::Kind::kPatch}});
    }));
  }
  if (options.json) {
    std::cout << base::Pretty(json::object{{"applied", true}, {"steps", done}});
  } else {
    std::cout << "done\n";
  }
  return {};
}

}  // namespace

std::variant<Options, Message> ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  base::FlagSet flags;
  AddFlags(flags, options);
  const auto parsed = flags.Parse(arguments);
  if (!parsed) return Mistake(parsed.error());
  if (parsed->help) {
    const base::HelpPage page{"hami upgrade", 1, "take a cluster over from HAMi, and give it back", kOverview,
                              kEpilogue};
    return Message{base::Render(page, flags, parsed->form, base::kBuildInfo), 0};
  }
  if (const auto good = TakeWords(parsed->words, options); !good) return Mistake(good.error());
  return options;
}

int Main(const std::vector<std::string>& arguments) {
  const auto parsed = ParseOptions(arguments);
  if (const Message* message = std::get_if<Message>(&parsed)) {
    (message->exit_status == 0 ? std::cout : std::cerr) << message->text << std::flush;
    return message->exit_status;
  }
  const base::Status done = Run(std::get<Options>(parsed));
  std::cout << std::flush;
  if (done) return 0;
  base::LogError(done.error());
  return 1;
}

}  // namespace hami::upgrade
