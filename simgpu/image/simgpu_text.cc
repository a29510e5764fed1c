// SPDX-License-Identifier: Apache-2.0
#include "simgpu/image/simgpu_text.h"

#include <bit>
#include <charconv>
#include <limits>

#include "simgpu/image/cubin.h"

namespace simgpu {
namespace {

constexpr std::uint32_t kMaxParamSize = 4096;
constexpr std::uint32_t kMaxParamBytes = 32764;

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};
constexpr Unit kTimeUnits[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000 * 1000}, {"s", 1000 * 1000 * 1000}};
constexpr Unit kSizeUnits[] = {{"", 1}, {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}};

// Splits off the next word of a line.
std::string_view NextWord(std::string_view* line) {
  const std::size_t start = line->find_first_not_of(" \t\r");
  if (start == std::string_view::npos) {
    *line = {};
    return {};
  }
  const std::size_t end = std::min(line->find_first_of(" \t\r", start), line->size());
  const std::string_view word = line->substr(start, end - start);
  *line = line->substr(end);
  return word;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class TextParser {
 public:
  TextParser(std::string_view text, Image* out) : rest_(text), out_(*out) {}

  bool Run() {
    out_.kind = ImageKind::kSimgpuText;
    out_.code_bytes = rest_.size();
    line_ = TakeLine();
    if (NextWord(&line_) != "simgpu-image" || NextWord(&line_) != "1" || !NextWord(&line_).empty()) {
      return Fail("expected 'simgpu-image 1'");
    }
    while (!rest_.empty()) {
      line_ = TakeLine();
      const std::string_view word = NextWord(&line_);
      if (word.empty()) continue;
      if (!ParseStatement(word)) return false;
      if (const std::string_view extra = NextWord(&line_); !extra.empty()) {
        return Fail("unexpected '" + std::string(extra) + "'");
      }
    }
    return FinishKernel();
  }

  const std::string& message() const { return message_; }

 private:
  bool Fail(const std::string& message) {
    message_ = "simgpu-image, line " + std::to_string(line_number_) + ": " + message;
    return false;
  }

  std::string_view TakeLine() {
    ++line_number_;
    const std::size_t end = rest_.find('\n');
    std::string_view line = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    return line.substr(0, line.find('#'));
  }

  bool ParseStatement(std::string_view word) {
    if (word == "kernel") return FinishKernel() && ParseKernel();
    if (word == "global") return FinishKernel() && ParseGlobal();
    if (in_kernel_) return ParseKernelLine(word);
    if (word == "arch") {
      std::uint64_t arch = 0;
      if (!Number(999, {}, &arch)) return false;
      out_.compute_capability = static_cast<int>(arch);
      return true;
    }
    if (word == "code") return Number(kMaxImageBytes, kSizeUnits, &out_.code_bytes);
    return Fail("unknown word '" + std::string(word) + "'");
  }

  // A number with one of `units` behind it, none when there are none.
  bool Number(std::uint64_t limit, std::span<const Unit> units, std::uint64_t* out) {
    const std::string_view word = NextWord(&line_);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc()) return Fail("expected a number, not '" + std::string(word) + "'");
    const std::string_view suffix = word.substr(static_cast<std::size_t>(end - word.data()));
    std::uint64_t factor = 0;
    if (units.empty() && suffix.empty()) factor = 1;
    for (const Unit& unit : units) {
      if (unit.name == suffix) factor = unit.factor;
    }
    if (factor == 0) return Fail("unknown unit in '" + std::string(word) + "'");
    if (value > limit / factor) return Fail("'" + std::string(word) + "' is too large");
    *out = value * factor;
    return true;
  }

  bool Number32(std::uint32_t limit, std::span<const Unit> units, std::uint32_t* out) {
    std::uint64_t value = 0;
    if (!Number(limit, units, &value)) return false;
    *out = static_cast<std::uint32_t>(value);
    return true;
  }

  bool Name(std::string* out) {
    *out = NextWord(&line_);
    return !out->empty() || Fail("expected a name");
  }

  bool ParseKernel() {
    in_kernel_ = true;
    return Name(&out_.kernels.emplace_back().name);
  }

  bool ParseKernelLine(std::string_view word) {
    KernelInfo& kernel = out_.kernels.back();
    if (word == "param") return ParseParam(&kernel);
    if (word == "regs") return Number32(255, {}, &kernel.registers);
    if (word == "shared") return Number32(1 << 20, kSizeUnits, &kernel.static_shared);
    if (word == "local") return Number32(1 << 20, kSizeUnits, &kernel.local_bytes);
    if (word == "allocates") return kernel.allocates = true;
    if (word == "max-threads") return Number32(1024, {}, &kernel.max_threads);
    if (word == "cost") return ParseCost(&kernel.cost);
    if (word == "cluster") {
      for (std::uint32_t& extent : kernel.required_cluster) {
        if (!Number32(64, {}, &extent)) return false;
      }
      return true;
    }
    if (word == "action") {
      const std::string_view action = NextWord(&line_);
      if (action == "fill") kernel.action = HostAction::kFill;
      if (action == "copy") kernel.action = HostAction::kCopy;
      if (action == "add") kernel.action = HostAction::kAdd;
      return kernel.action != HostAction::kNone || Fail("unknown action '" + std::string(action) + "'");
    }
    return Fail("unknown word '" + std::string(word) + "'");
  }

  // `param SIZE`: aligned to its size where that is 1, 2, 4, 8 or 16, to 8 otherwise.
  bool ParseParam(KernelInfo* kernel) {
    std::uint32_t size = 0;
    if (!Number32(kMaxParamSize, {}, &size)) return false;
    if (size == 0) return Fail("a parameter has at least one byte");
    const std::uint32_t alignment = std::has_single_bit(size) && size <= 16 ? size : 8;
    const std::uint32_t offset = (kernel->param_bytes + alignment - 1) / alignment * alignment;
    if (offset + size > kMaxParamBytes) return Fail("parameters too large");
    kernel->params.push_back({offset, size});
    kernel->param_bytes = offset + size;
    return true;
  }

  bool ParseCost(CostModel* cost) {
    const std::string_view kind = NextWord(&line_);
    if (kind == "total" || kind == "per-block") {
      cost->kind = kind == "total" ? CostModel::Kind::kTotal : CostModel::Kind::kPerBlock;
      return Number(std::numeric_limits<std::uint64_t>::max(), kTimeUnits, &cost->sm_nanos);
    }
    if (kind == "param" || kind == "param-per-block") {
      cost->kind = kind == "param" ? CostModel::Kind::kParamTotal : CostModel::Kind::kParamPerBlock;
      return Number32(kMaxParamBytes, {}, &cost->param);
    }
    return Fail("unknown cost '" + std::string(kind) + "'");
  }

  // What only the whole kernel can tell: that cost and action name parameters which are there.
  bool FinishKernel() {
    if (!in_kernel_) return true;
    in_kernel_ = false;
    const KernelInfo& kernel = out_.kernels.back();
    const bool from_param =
        kernel.cost.kind == CostModel::Kind::kParamTotal || kernel.cost.kind == CostModel::Kind::kParamPerBlock;
    if (from_param && (kernel.cost.param >= kernel.params.size() || kernel.params[kernel.cost.param].size != 8)) {
      return Fail("kernel " + kernel.name + ": the cost's parameter must be there and have 8 bytes");
    }
    std::vector<std::uint32_t> expected;
    if (kernel.action == HostAction::kFill) expected = {8, 8, 1};
    if (kernel.action == HostAction::kCopy) expected = {8, 8, 8};
    if (kernel.action == HostAction::kAdd) expected = {8, 8, 4};
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (i >= kernel.params.size() || kernel.params[i].size != expected[i]) {
        return Fail("kernel " + kernel.name + ": parameter " + std::to_string(i) + " must have " +
                    std::to_string(expected[i]) + " bytes for its action");
      }
    }
    return true;
  }

  // `global NAME SIZE [constant|managed] [= HEX]`
  bool ParseGlobal() {
    GlobalInfo& global = out_.globals.emplace_back();
    if (!Name(&global.name) || !Number(kMaxGlobalBytes, kSizeUnits, &global.size)) return false;
    if (global.size == 0) return Fail("a global has at least one byte");
    std::string_view word = NextWord(&line_);
    if (word == "constant" || word == "managed") {
      global.space = word == "managed" ? GlobalInfo::Space::kManaged : GlobalInfo::Space::kConstant;
      word = NextWord(&line_);
    }
    if (word.empty()) return true;
    if (word != "=") return Fail("expected '=', not '" + std::string(word) + "'");
    const std::string_view digits = NextWord(&line_);
    if (digits.empty() || digits.size() % 2 != 0) return Fail("expected pairs of hexadecimal digits");
    for (std::size_t i = 0; i < digits.size(); i += 2) {
      const int high = HexDigit(digits[i]);
      const int low = HexDigit(digits[i + 1]);
      if (high < 0 || low < 0) return Fail("expected pairs of hexadecimal digits");
      global.init.push_back(static_cast<std::byte>(high * 16 + low));
    }
    return global.init.size() <= global.size || Fail("more initial bytes than the global has");
  }

  std::string_view rest_;
  std::string_view line_;
  int line_number_ = 0;
  bool in_kernel_ = false;
  Image& out_;
  std::string message_;
};

}  // namespace

ParseStatus ParseSimgpuText(std::string_view text, const Target& target, Image* out, std::string* log) {
  TextParser parser(text, out);
  if (!parser.Run()) {
    if (log != nullptr) *log = parser.message();
    return ParseStatus::kInvalidPtx;
  }
  const bool any = out->compute_capability == 0 || target.compute_capability == 0;
  if (!any && !CubinRunsOn(out->compute_capability, target.compute_capability)) return ParseStatus::kNoBinaryForGpu;
  return ParseStatus::kOk;
}

}  // namespace simgpu
