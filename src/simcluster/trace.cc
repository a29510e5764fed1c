// SPDX-License-Identifier: Apache-2.0

#include "simcluster/trace.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <unordered_set>

#include "base/strings.h"

namespace hami::simcluster {
namespace {

using base::Concat;
using base::Fail;
using base::Result;
using base::Status;

constexpr std::int64_t kMostAmount = 1LL << 40;
constexpr int kMostCards = 64;               // of a node
constexpr std::size_t kMostLines = 5000000;  // a list of this many pods takes a gigabyte
constexpr int kWhole = 1000;
constexpr device::MiB kUsualMemory = 16000;  // where a list says nothing; a thousandth is a whole number of MiB

// One line of CSV. A quoted field may hold commas, and a doubled quote stands for one.
std::optional<std::vector<std::string>> Fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (quoted) return std::nullopt;
  for (std::string& field : fields) field = std::string(base::Trim(field));
  return fields;
}

// The fields of a line by the names of their columns.
class Row {
 public:
  Row(const std::map<std::string, std::size_t>& columns, const std::vector<std::string>& fields)
      : columns_(columns), fields_(fields) {}

  std::string_view Text(const char* column) const {
    const auto found = columns_.find(column);
    return found == columns_.end() ? std::string_view() : std::string_view(fields_[found->second]);
  }
  // Nothing in the field: FALLBACK. A fraction is cut off: some lists write times as `12.0`.
  Result<std::int64_t> Number(const char* column, std::int64_t fallback) const {
    const std::string_view text = Text(column);
    if (text.empty()) return fallback;
    double value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool plain = read.ec == std::errc() && read.ptr == text.data() + text.size();
    if (!plain || !(value >= 0) || value > static_cast<double>(kMostAmount)) {
      return Fail(Concat({"column ", column, " holds '", base::Printable(text), "', which is no amount"}),
                  "Write a plain number that is not negative.");
    }
    return static_cast<std::int64_t>(value);
  }

 private:
  const std::map<std::string, std::size_t>& columns_;
  const std::vector<std::string>& fields_;
};

using TakeRow = std::function<Status(const Row&)>;

class Table {
 public:
  Table(const std::string& file, std::vector<std::string> required) : file_(file), required_(std::move(required)) {}

  Status Read(std::string_view text, const TakeRow& take) {
    while (!text.empty()) {
      ++line_;
      if (line_ > kMostLines) return Wrong(Concat({"more than ", std::to_string(kMostLines), " lines"}));
      const std::size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = base::Trim(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.empty()) continue;
      HAMI_TRY(Line(line, take));
    }
    if (columns_.empty())
      return Wrong("there is no header", Concat({"The first line names the columns: ", Required()}));
    return {};
  }

 private:
  tl::unexpected<base::Error> Wrong(const std::string& what, std::string hint = {}) const {
    return Fail(Concat({file_, ":", std::to_string(line_), ": ", what}), std::move(hint));
  }
  std::string Required() const { return base::Join(required_, ", "); }

  Status Line(std::string_view line, const TakeRow& take) {
    const auto fields = Fields(line);
    if (!fields) return Wrong("a quote is not closed");
    if (columns_.empty()) return Header(*fields);
    if (fields->size() != width_) {
      return Wrong(Concat({std::to_string(fields->size()), " fields, where the header has ", std::to_string(width_)}));
    }
    const Status taken = take(Row(columns_, *fields));
    if (!taken) return Wrong(taken.error().message, taken.error().hint);
    return {};
  }

  Status Header(const std::vector<std::string>& names) {
    width_ = names.size();
    for (std::size_t i = 0; i < names.size(); ++i) columns_.emplace(names[i], i);
    for (const std::string& name : required_) {
      if (columns_.count(name) > 0) continue;
      const auto near = base::Nearest(name, names);
      return Wrong(
          Concat({"the column ", name, " is missing", near ? Concat({" (is it ", *near, "?)"}) : std::string()}),
          Concat({"The first line names the columns: ", Required()}));
    }
    return {};
  }

  const std::string& file_;
  std::vector<std::string> required_;
  std::map<std::string, std::size_t> columns_;
  std::size_t width_ = 0;
  std::size_t line_ = 0;
};

Status TakeHost(const Row& row, sched::HostAmounts& host) {
  const auto cpu = row.Number("cpu_milli", 0);
  HAMI_TRY(cpu);
  const auto memory = row.Number("memory_mib", 0);
  HAMI_TRY(memory);
  host = {*cpu, *memory};
  return {};
}

Status TakeNode(const Row& row, TraceNode& node) {
  node.name = row.Text("sn");
  if (node.name.empty()) return Fail("a node without a name");
  HAMI_TRY(TakeHost(row, node.host));
  const auto cards = row.Number("gpu", 0);
  HAMI_TRY(cards);
  if (*cards > kMostCards) return Fail(Concat({"more than ", std::to_string(kMostCards), " cards"}));
  node.cards = static_cast<int>(*cards);
  node.model = row.Text("model");
  const auto memory = row.Number("gpu_memory_mib", kUsualMemory);
  HAMI_TRY(memory);
  node.card_memory = *memory;
  const auto fails = row.Number("fails_at", kNever);
  HAMI_TRY(fails);
  const auto back = row.Number("back_at", kNever);
  HAMI_TRY(back);
  node.fails_at = *fails;
  node.back_at = *back;
  if (node.fails_at != kNever && node.back_at <= node.fails_at) return Fail("back_at is not after fails_at");
  return {};
}

Status TakePod(const Row& row, TracePod& pod) {
  pod.name = row.Text("name");
  if (pod.name.empty()) return Fail("a pod without a name");
  HAMI_TRY(TakeHost(row, pod.host));
  const auto cards = row.Number("num_gpu", 0);
  HAMI_TRY(cards);
  const auto milli = row.Number("gpu_milli", 0);
  HAMI_TRY(milli);
  if (*cards > kMostCards) return Fail(Concat({"more than ", std::to_string(kMostCards), " cards"}));
  if (*milli > kWhole) {
    return Fail(Concat({"gpu_milli ", std::to_string(*milli), " is more than a card"}),
                "gpu_milli is of each card: two whole cards are num_gpu 2 and gpu_milli 1000.");
  }
  pod.cards = static_cast<int>(*cards);
  pod.milli = static_cast<int>(*milli);
  if ((pod.cards == 0) != (pod.milli == 0)) return Fail("num_gpu and gpu_milli: one is 0 and the other is not");
  for (const std::string& model : base::Split(row.Text("gpu_spec"), '|')) {
    if (!base::Trim(model).empty()) pod.models.emplace_back(base::Trim(model));
  }
  const auto arrives = row.Number("creation_time", 0);
  HAMI_TRY(arrives);
  const auto ends = row.Number("deletion_time", kNever);
  HAMI_TRY(ends);
  pod.arrives = *arrives;
  pod.ends = *ends;
  if (pod.ends < pod.arrives) return Fail("deletion_time is before creation_time");
  return {};
}

template <typename T>
Result<std::vector<T>> ReadTable(std::string_view text, const std::string& file, std::vector<std::string> required,
                                 Status (*take)(const Row&, T&)) {
  std::vector<T> out;
  std::unordered_set<std::string> names;
  Table table(file, std::move(required));
  const Status read = table.Read(text, [&](const Row& row) -> Status {
    T one;
    HAMI_TRY(take(row, one));
    if (!names.insert(one.name).second) return Fail(Concat({"the name '", base::Printable(one.name), "' again"}));
    out.push_back(std::move(one));
    return {};
  });
  HAMI_TRY(read);
  return out;
}

std::string TimeText(Seconds time) { return time == kNever ? std::string() : std::to_string(time); }

std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

}  // namespace

Result<std::vector<TraceNode>> ReadNodes(std::string_view text, const std::string& file) {
  return ReadTable<TraceNode>(text, file, {"sn", "cpu_milli", "memory_mib", "gpu", "model"}, TakeNode);
}

Result<std::vector<TracePod>> ReadPods(std::string_view text, const std::string& file) {
  return ReadTable<TracePod>(text, file, {"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, TakePod);
}

std::string WriteNodes(const std::vector<TraceNode>& nodes) {
  std::string out = "sn,cpu_milli,memory_mib,gpu,model,gpu_memory_mib,fails_at,back_at\n";
  for (const TraceNode& node : nodes) {
    out += Concat({Quoted(node.name), ",", std::to_string(node.host.cpu), ",", std::to_string(node.host.memory), ",",
                   std::to_string(node.cards), ",", Quoted(node.model), ",", std::to_string(node.card_memory), ",",
                   TimeText(node.fails_at), ",", TimeText(node.back_at), "\n"});
  }
  return out;
}

std::string WritePods(const std::vector<TracePod>& pods) {
  std::string out = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n";
  for (const TracePod& pod : pods) {
    out += Concat({Quoted(pod.name), ",", std::to_string(pod.host.cpu), ",", std::to_string(pod.host.memory), ",",
                   std::to_string(pod.cards), ",", std::to_string(pod.milli), ",", Quoted(base::Join(pod.models, "|")),
                   ",", std::to_string(pod.arrives), ",", TimeText(pod.ends), "\n"});
  }
  return out;
}

}  // namespace hami::simcluster
