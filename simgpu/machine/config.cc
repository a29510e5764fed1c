// SPDX-License-Identifier: Apache-2.0
#include "simgpu/machine/config.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "simgpu/machine/config_values.h"
#include "simgpu/machine/machine.h"
#include "simgpu/machine/presets.h"

namespace simgpu {
namespace {

struct Word {
  std::string key, value;  // a bare word has an empty key
};

struct Statement {
  int line = 0;
  std::string verb;
  std::vector<Word> words;
};

// Where a message points to, and the message itself once there is one.
class Complaint {
 public:
  Complaint(std::string_view origin, std::string* out)
      : origin_(origin.empty() ? "configuration" : origin), out_(out) {}
  bool At(int line, const std::string& text) {
    *out_ = Text({origin_, ":", std::to_string(line), ": ", text});
    return false;
  }
  bool Plain(const std::string& text) {
    *out_ = text;
    return false;
  }

 private:
  std::string_view origin_;
  std::string* out_;
};

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Reads one word; quotes may stand anywhere in it.
bool ReadWord(std::string_view line, std::size_t* at, Word* word, std::string* why) {
  std::string text;
  bool quoted = false, in_value = false;
  std::size_t i = *at;
  for (; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (IsBlank(c) || c == '#')) {
      break;
    } else if (!quoted && c == '=' && !in_value) {
      in_value = true;
      word->key = std::exchange(text, std::string());
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      *why = "control character in the text; write plain printable text";
      return false;
    } else {
      text += c;
    }
  }
  *at = i;
  word->value = std::move(text);
  if (quoted) {
    *why = "quote is not closed; add a \" at the end of the value";
    return false;
  }
  if (in_value && word->key.empty()) {
    *why = "'=' without a key before it; write key=value without blanks around '='";
    return false;
  }
  return true;
}

bool Split(std::string_view text, Complaint& complain, std::vector<Statement>* out) {
  int number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    Statement statement;
    statement.line = number;
    for (std::size_t at = 0; at < line.size();) {
      if (IsBlank(line[at])) {
        ++at;
        continue;
      }
      if (line[at] == '#') break;
      Word word;
      std::string why;
      if (!ReadWord(line, &at, &word, &why)) return complain.At(number, why);
      if (statement.verb.empty()) {
        if (!word.key.empty() || word.value.empty()) {
          return complain.At(number,
                             "a line begins with a verb: gpus, option, device, fault, xid, lost, recover, set, "
                             "link or clear");
        }
        statement.verb = word.value;
      } else {
        statement.words.push_back(std::move(word));
      }
    }
    if (!statement.verb.empty()) out->push_back(std::move(statement));
  }
  return true;
}

bool ParseGpus(std::string_view text, std::uint64_t seed, Plan* plan, std::string* why) {
  plan->device_count = 0;
  while (true) {
    const std::size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    std::uint64_t count = 1;
    const std::size_t x = part.find_first_not_of("0123456789");
    if (x != std::string_view::npos && x > 0 && (part[x] == 'x' || part[x] == 'X')) {
      if (!ParseUnsigned(part.substr(0, x), 1, kMaxDevices, &count)) count = 0;
      part.remove_prefix(x + 1);
    }
    const DeviceSpec* const preset = FindPreset(part);
    if (preset == nullptr) {
      *why = Text({"'", part, "' is no GPU model; known: ", PresetNames(), " (e.g. 8xH100 or 2xT4,1xA100-80)"});
      return false;
    }
    if (count == 0 || plan->device_count + static_cast<int>(count) > kMaxDevices) {
      *why = Text({"a machine has 1 to ", std::to_string(kMaxDevices), " GPUs"});
      return false;
    }
    for (std::uint64_t i = 0; i < count; ++i) plan->device[plan->device_count++] = *preset;
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  for (int i = 0; i < plan->device_count; ++i) Identify(seed, i, plan->device_count, &plan->device[i]);
  return true;
}

Options DefaultOptions() {
  Options o = {};
  o.seed = 1;
  o.kernel_ns = 10'000;
  o.nvml_lag_ns = 100'000'000;
  o.nvml_period_ns = 166'666'667;
  o.cuda_version = 13000;
  std::strcpy(o.driver_version, "580.95.05");
  return o;
}

bool ParseDevice(const std::string& text, int count, int* dev) {
  if (text == "*") {
    *dev = -1;
    return true;
  }
  std::uint64_t n = 0;
  if (!ParseUnsigned(text, 0, static_cast<std::uint64_t>(count) - 1, &n)) return false;
  *dev = static_cast<int>(n);
  return true;
}

std::string BadDevice(const std::string& text, int count) {
  return Text({"'", text, "' is no device; write 0 to ", std::to_string(count - 1), ", or * for all"});
}

bool ApplyDevice(const Statement& s, Plan* plan, Complaint& complain) {
  int dev = -1;
  if (s.words.empty() || !s.words[0].key.empty()) {
    return complain.At(s.line, "which device? write: device 0 key=value … (or device * …)");
  }
  if (!ParseDevice(s.words[0].value, plan->device_count, &dev)) {
    return complain.At(s.line, BadDevice(s.words[0].value, plan->device_count));
  }
  if (s.words.size() == 1) return complain.At(s.line, "which field? write: device 0 memory_mib=40960");
  for (std::size_t i = 1; i < s.words.size(); ++i) {
    for (int d = 0; d < plan->device_count; ++d) {
      std::string why;
      if ((dev < 0 || dev == d) && !SetDeviceField(s.words[i].key, s.words[i].value, &plan->device[d], &why)) {
        return complain.At(s.line, why);
      }
    }
  }
  return true;
}

bool ApplyOptions(const Statement& s, Plan* plan, Complaint& complain) {
  if (s.words.empty()) return complain.At(s.line, "which option? write: option clock=virtual");
  for (const Word& word : s.words) {
    std::string why;
    if (IsProfileKey(word.key)) continue;  // they wait until there are devices
    if (!SetOption(word.key, word.value, &plan->options, &why)) return complain.At(s.line, why);
  }
  return true;
}

// What the options say of the profile, for all devices: its name first, then what differs from it.
bool ApplyProfiles(const std::vector<Statement>& statements, std::string_view variable, Plan* plan,
                   Complaint& complain) {
  std::string why;
  for (const bool by_name : {true, false}) {
    for (const Statement& s : statements) {
      if (s.verb != "option") continue;
      for (const Word& word : s.words) {
        if (!IsProfileKey(word.key) || (word.key == "profile") != by_name) continue;
        for (int d = 0; d < plan->device_count; ++d) {
          if (!SetProfileField(word.key, word.value, &plan->device[d].profile, &why)) return complain.At(s.line, why);
        }
      }
    }
    for (int d = 0; by_name && !variable.empty() && d < plan->device_count; ++d) {
      if (!SetProfileField("profile", variable, &plan->device[d].profile, &why)) {
        return complain.Plain(Text({"SIMGPU_PROFILE: ", why}));
      }
    }
  }
  return true;
}

bool ChangeOf(const Statement& s, int device_count, Complaint& complain, Change* change) {
  std::string why;
  if (!StartChange(s.verb, change)) {
    return complain.At(s.line, Text({"'", s.verb,
                                     "' is no verb here; known: gpus, option, device (only in a file), fault, "
                                     "xid, lost, recover, set, link, clear"}));
  }
  bool have_device = false;
  for (const Word& word : s.words) {
    if (word.key == "device") {
      have_device = true;
      if (!ParseDevice(word.value, device_count, &change->dev)) {
        return complain.At(s.line, BadDevice(word.value, device_count));
      }
    } else if (!SetChangeField(word.key, word.value, change, &why)) {
      return complain.At(s.line, why);
    }
  }
  if (!have_device && change->kind != Change::Kind::kFault && change->kind != Change::Kind::kClear) {
    return complain.At(s.line, "which device? add device=0 (or device=* for all)");
  }
  if (!FinishChange(*change, &why)) return complain.At(s.line, why);
  return true;
}

}  // namespace

bool MakePlan(std::string_view simgpu, std::string_view text, std::string_view origin, Plan* plan, std::string* error,
              std::string_view profile) {
  Complaint complain(origin, error);
  std::vector<Statement> statements;
  if (!Split(text, complain, &statements)) return false;
  plan->options = DefaultOptions();
  plan->changes.clear();
  // The order of lines does not matter: first the options (the seed decides identities), then the GPUs, then the rest.
  std::string gpus(simgpu), why;
  int gpus_line = 0;
  for (const Statement& s : statements) {
    if (s.verb == "option" && !ApplyOptions(s, plan, complain)) return false;
    if (s.verb != "gpus") continue;
    if (gpus_line != 0)
      return complain.At(s.line, "a second 'gpus' line; put all GPUs into one, e.g. gpus 2xT4,1xH100");
    if (s.words.size() != 1 || !s.words[0].key.empty()) return complain.At(s.line, "write: gpus 8xH100");
    gpus_line = s.line;
    if (simgpu.empty()) gpus = s.words[0].value;  // the variable wins
  }
  if (gpus.empty()) gpus = "1xH100";
  if (!ParseGpus(gpus, plan->options.seed, plan, &why)) {
    return simgpu.empty() ? complain.At(gpus_line, why) : complain.Plain(Text({"SIMGPU=", simgpu, ": ", why}));
  }
  if (!ApplyProfiles(statements, profile, plan, complain)) return false;
  for (const Statement& s : statements) {
    if (s.verb == "option" || s.verb == "gpus") continue;
    if (s.verb == "device") {
      if (!ApplyDevice(s, plan, complain)) return false;
      continue;
    }
    Change change;
    if (!ChangeOf(s, plan->device_count, complain, &change)) return false;
    plan->changes.push_back(std::move(change));
  }
  return true;
}

bool ParseChanges(std::string_view text, std::string_view origin, int device_count, std::vector<Change>* changes,
                  std::string* error) {
  Complaint complain(origin, error);
  std::vector<Statement> statements;
  if (!Split(text, complain, &statements)) return false;
  changes->clear();
  for (const Statement& s : statements) {
    if (s.verb == "gpus" || s.verb == "option" || s.verb == "device") {
      return complain.At(
          s.line, Text({"'", s.verb, "' describes a machine at its creation; put it into the SIMGPU_CONFIG file"}));
    }
    Change change;
    if (!ChangeOf(s, device_count, complain, &change)) return false;
    changes->push_back(std::move(change));
  }
  return true;
}

}  // namespace simgpu
