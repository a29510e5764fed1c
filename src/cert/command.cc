// SPDX-License-Identifier: Apache-2.0

#include "cert/command.h"

#include <iostream>

#include "base/build_info.h"
#include "base/flags.h"
#include "base/help_page.h"
#include "base/log.h"
#include "base/strings.h"
#include "kube/timestamp.h"

namespace hami::cert {
namespace {

constexpr int kUsage = 2;
constexpr auto kDay = std::chrono::hours(24);

constexpr const char* kOverview =
    "Usage: hami cert --namespace NS --service NAME --secret NAME --webhook NAME [flags]\n\n"
    "Makes sure that the API server trusts hami-scheduler's webhook: an authority and a certificate in the Secret\n"
    "(ca.crt, tls.crt, tls.key) that the scheduler serves from, and the authority in the caBundle of the\n"
    "MutatingWebhookConfiguration. Both must exist. Does nothing while all is well, so it may run as often as you "
    "like;\n"
    "renews before the end, without a moment in which the webhook is not trusted.\n\n"
    "  hami cert -n kube-system --service hami-scheduler --secret hami-scheduler-tls --webhook hami-webhook\n"
    "  hami cert --check …      only looks\n\n";

constexpr const char* kEpilogue =
    "\nNeeds get and patch on that Secret and that webhook configuration (--check: get), and nothing else.\n"
    "The authority's key is used once and kept nowhere.\n"
    "Exit status: 0 all is well, 1 it is not, with the reason; 2 a mistake on the command line.\n";

Message Mistake(const base::Error& error) { return {base::MistakeText("hami cert", error), kUsage}; }

base::FlagSet::Take Seconds(std::chrono::seconds& out, int most) {
  return [&out, most](const std::string& text) -> base::Status {
    int number = 0;
    HAMI_TRY(base::TakeNumber(number, 0, most)(text));
    out = std::chrono::seconds(number);
    return {};
  };
}

void AddFlags(base::FlagSet& flags, Options& options) {
  flags.Group("What");
  flags.Text("namespace", "NS", options.place.ns, "of Service and Secret");
  flags.Shorthand('n');
  flags.Text("service", "NAME", options.service, "the webhook's Service: the certificate is for NAME.NS.svc");
  flags.Text("secret", "NAME", options.place.secret, "where the certificate is kept");
  flags.Text("webhook", "NAME", options.place.webhook, "the MutatingWebhookConfiguration");
  flags.Custom(
      "name", "HOST", "",
      [&options](const std::string& text) -> base::Status {
        options.more_names.push_back(text);
        return {};
      },
      "one more host name or address that the certificate is for; may be given several times");
  flags.Bool("check", options.check, "write nothing; say whether the API server would trust what is there");
  flags.Group("When");
  flags.Custom("days", "N", "365", base::TakeNumber(options.days, 1, 3650), "how long a certificate is good for");
  flags.Custom("renew-before", "DAYS", "90", base::TakeNumber(options.renew_before_days, 0, 3649),
               "renew one that has fewer days left");
  flags.Custom("wait", "SECONDS", "300", Seconds(options.times.wait, 86'400),
               "for Secret and webhook to exist, and for an API server that does not answer");
  flags.Custom("settle", "SECONDS", "10", Seconds(options.times.settle, 600),
               "between a new authority in the webhook and the certificate that needs it");
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

base::Status CheckTogether(const Options& options) {
  const std::pair<const char*, const std::string&> needed[] = {{"--namespace", options.place.ns},
                                                               {"--service", options.service},
                                                               {"--secret", options.place.secret},
                                                               {"--webhook", options.place.webhook}};
  for (const auto& [flag, value] : needed) {
    if (value.empty()) return base::Fail(std::string(flag) + " is missing", "hami cert --help shows an example");
  }
  if (options.renew_before_days >= options.days) {
    return base::Fail("--renew-before " + std::to_string(options.renew_before_days) + " is not less than --days " +
                          std::to_string(options.days),
                      "a certificate would be replaced at every look");
  }
  return {};
}

void Print(const Options& options, const Outcome& outcome) {
  const std::string end = kube::FormatTime(outcome.end);
  const std::string secret = options.place.ns + "/" + options.place.secret;
  if (options.json) {
    const base::json::value result{
        {"secret", secret},         {"webhook", options.place.webhook}, {"issued", outcome.issued},
        {"reason", outcome.reason}, {"bundleWritten", outcome.bundled}, {"notAfter", end},
    };
    std::cout << base::Compact(result) << "\n";
    return;
  }
  std::cout << "certificate in " << secret << (outcome.issued ? " issued (" + outcome.reason + ")" : " is good")
            << ", until " << end << "; webhook " << options.place.webhook
            << (outcome.bundled ? " trusts it now" : " trusts it") << "\n";
}

}  // namespace

Wanted Options::wanted() const {
  Wanted wanted;
  wanted.names = {service + "." + place.ns + ".svc", service + "." + place.ns + ".svc.cluster.local"};
  wanted.names.insert(wanted.names.end(), more_names.begin(), more_names.end());
  wanted.life = days * kDay;
  wanted.renew_before = renew_before_days * kDay;
  return wanted;
}

std::variant<Options, Message> ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  base::FlagSet flags;
  AddFlags(flags, options);
  const auto parsed = flags.Parse(arguments);
  if (!parsed) return Mistake(parsed.error());
  if (parsed->help) {
    const base::HelpPage page{"hami cert", 1, "keep the certificate of hami-scheduler's webhook", kOverview, kEpilogue};
    return Message{base::Render(page, flags, parsed->form, base::kBuildInfo), 0};
  }
  if (!parsed->words.empty())
    return Mistake({"'" + parsed->words.front() + "' is not understood", "hami cert --help lists every flag"});
  if (const auto good = CheckTogether(options); !good) return Mistake(good.error());
  return options;
}

int Carry(const Options& options) {
  const auto failed = [](const base::Error& error) {
    base::LogError(error);
    return 1;
  };
  kube::ConfigSources sources;
  sources.kubeconfig = options.kubeconfig;
  const auto config = kube::FindConfig(sources);
  if (!config) return failed(config.error());
  const auto client = kube::Client::Make(*config, {.user_agent = "hami-cert"});
  if (!client) return failed(client.error());
  const net::Canceller never;
  Keeper keeper(**client, options.place, options.times, never);
  if (options.check) {
    const auto end = keeper.Check(options.wanted());
    if (!end) return failed(end.error());
    Outcome outcome;
    outcome.end = *end;
    Print(options, outcome);
    return 0;
  }
  const auto outcome = keeper.Ensure(options.wanted());
  if (!outcome) return failed(outcome.error());
  Print(options, *outcome);
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  const auto parsed = ParseOptions(arguments);
  if (const Message* message = std::get_if<Message>(&parsed)) {
    (message->exit_status == 0 ? std::cout : std::cerr) << message->text << std::flush;
    return message->exit_status;
  }
  return Carry(std::get<Options>(parsed));
}

}  // namespace hami::cert
