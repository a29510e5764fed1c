// SPDX-License-Identifier: Apache-2.0
#include "simgpu/image/ptx.h"

#include <array>
#include <bit>
#include <limits>
#include <unordered_map>

#include "simgpu/image/ptx_lexer.h"

namespace simgpu {
namespace {

// Initial bytes that sparse nested initialisers may spread out to, for each byte of text, before they count as a trap.
constexpr std::uint64_t kInitBytesPerTextByte = 16;
constexpr std::uint64_t kInitBytesAlways = std::uint64_t{1} << 20;
constexpr std::size_t kMaxDimensions = 16;

struct TypeName {
  std::string_view name;
  std::uint32_t bytes;
  bool real;
};

constexpr std::array kTypes = {
    TypeName{".b8", 1, false},      TypeName{".u8", 1, false},         TypeName{".s8", 1, false},
    TypeName{".b16", 2, false},     TypeName{".u16", 2, false},        TypeName{".s16", 2, false},
    TypeName{".f16", 2, true},      TypeName{".bf16", 2, true},        TypeName{".b32", 4, false},
    TypeName{".u32", 4, false},     TypeName{".s32", 4, false},        TypeName{".f32", 4, true},
    TypeName{".tf32", 4, true},     TypeName{".f16x2", 4, false},      TypeName{".bf16x2", 4, false},
    TypeName{".b64", 8, false},     TypeName{".u64", 8, false},        TypeName{".s64", 8, false},
    TypeName{".f64", 8, true},      TypeName{".b128", 16, false},      TypeName{".texref", 8, false},
    TypeName{".surfref", 8, false}, TypeName{".samplerref", 8, false},
};

const TypeName* FindType(std::string_view name) {
  for (const TypeName& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

std::uint64_t AlignUp(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

// One declared variable or parameter: what stands between its state space and its `;`, `,` or `=`.
struct Declaration {
  std::string_view name;
  const TypeName* type = nullptr;
  std::uint32_t lanes = 1;
  std::uint64_t alignment = 0;  // 0: the natural one
  bool managed = false;
  bool array = false;
  std::vector<std::uint64_t> dimensions;  // 0: to be counted from the initialiser

  std::uint64_t ElementBytes() const { return std::uint64_t{type->bytes} * lanes; }
  std::uint64_t Alignment() const { return alignment != 0 ? alignment : ElementBytes(); }
  // Empty: more than any variable may have.
  std::optional<std::uint64_t> TotalBytes() const {
    std::uint64_t bytes = ElementBytes();
    for (const std::uint64_t extent : dimensions) {
      if (extent != 0 && bytes > kMaxGlobalBytes / extent) return std::nullopt;
      bytes *= extent;
    }
    return bytes;
  }
};

struct SharedVariable {
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 1;
  std::size_t counted_for = std::numeric_limits<std::size_t>::max();  // the last kernel it was counted for
};

class PtxParser {
 public:
  PtxParser(std::string_view text, Image* out)
      : lexer_(text), out_(*out), init_limit_(kInitBytesAlways + text.size() * kInitBytesPerTextByte) {}

  bool Run() {
    out_.kind = ImageKind::kPtx;
    if (!ParseVersion()) return false;
    bool external = false;
    while (lexer_.Peek().kind != Token::Kind::kEnd) {
      const Token token = lexer_.Take();
      if (token.Is(".extern")) {
        external = true;
        continue;
      }
      if (token.Is(".visible") || token.Is(".weak") || token.Is(".common")) continue;
      if (!ParseItem(token, external)) return false;
      external = false;
    }
    return has_target_ || Fail("no .target");
  }

  std::string Message() const { return "line " + std::to_string(lexer_.line()) + ": " + message_; }

 private:
  bool Fail(std::string_view message) {
    if (message_.empty()) message_ = message;
    return false;
  }

  bool ParseVersion() {
    if (!lexer_.TakeIf(".version")) return Fail("expected .version");
    const std::string_view version = lexer_.Take().text;
    const std::size_t dot = version.find('.');
    if (dot == std::string_view::npos) return Fail("expected a version number");
    const auto major = ParsePtxNumber(version.substr(0, dot));
    const auto minor = ParsePtxNumber(version.substr(dot + 1));
    if (!major || !minor || major->bits > 99 || minor->bits > 9) return Fail("expected a version number");
    out_.ptx_version = static_cast<int>(major->bits * 10 + minor->bits);
    return true;
  }

  bool ParseItem(const Token& token, bool external) {
    if (token.Is(".target")) return ParseTarget();
    if (token.Is(".entry")) return ParseEntry(external);
    if (token.Is(".func")) return SkipFunction();
    if (token.Is(".global")) return ParseVariables(GlobalInfo::Space::kDevice, external);
    if (token.Is(".const")) return ParseVariables(GlobalInfo::Space::kConstant, external);
    if (token.Is(".shared")) return ParseShared(external, nullptr);
    if (token.Is(".address_size")) return lexer_.Take().kind == Token::Kind::kNumber || Fail("expected a number");
    if (token.Is(".section")) {
      while (lexer_.Peek().kind != Token::Kind::kEnd && !lexer_.Peek().Is("{")) lexer_.Take();
      return SkipBraces(nullptr);
    }
    if (token.Is(".file")) return SkipFile();
    if (token.Is(".alias") || token.Is(".pragma") || token.Is(".tex")) return SkipStatement();
    return Fail("unexpected '" + std::string(token.text.substr(0, 20)) + "'");
  }

  bool SkipStatement() {
    while (lexer_.Peek().kind != Token::Kind::kEnd) {
      if (lexer_.Take().Is(";")) return true;
    }
    return Fail("expected ;");
  }

  // A number and a name, then optionally a time and a size.
  bool SkipFile() {
    lexer_.Take();
    lexer_.Take();
    while (lexer_.TakeIf(",")) lexer_.Take();
    return true;
  }

  bool ParseTarget() {
    const std::string_view target = lexer_.Take().text;
    if (!target.starts_with("sm_")) return Fail("expected sm_NN");
    std::string_view digits = target.substr(3);
    digits = digits.substr(0, digits.find_first_not_of("0123456789"));
    const auto number = ParsePtxNumber(digits);
    if (!number || number->bits == 0 || number->bits > 999) return Fail("expected sm_NN");
    out_.compute_capability = static_cast<int>(number->bits);
    has_target_ = true;
    while (lexer_.TakeIf(",")) lexer_.Take();
    return true;
  }

  std::optional<std::uint64_t> TakeInteger() {
    const Token token = lexer_.Take();
    const auto number = token.kind == Token::Kind::kNumber ? ParsePtxNumber(token.text) : std::nullopt;
    if (!number || number->real != 0) {
      Fail("expected an integer");
      return std::nullopt;
    }
    return number->bits;
  }

  // One attribute or type word of a declaration.
  bool ParseDirective(std::string_view word, Declaration* declaration) {
    if (word == ".align") {
      const auto alignment = TakeInteger();
      if (!alignment) return false;
      if (!std::has_single_bit(*alignment) || *alignment > 4096) return Fail("bad alignment");
      declaration->alignment = *alignment;
    } else if (word == ".attribute") {
      if (!lexer_.TakeIf("(")) return Fail("expected (");
      while (!lexer_.Peek().Is(")") && lexer_.Peek().kind != Token::Kind::kEnd) {
        declaration->managed |= lexer_.Take().Is(".managed");
      }
      if (!lexer_.TakeIf(")")) return Fail("expected )");
    } else if (word == ".v2" || word == ".v4" || word == ".v8") {
      declaration->lanes = static_cast<std::uint32_t>(word[2] - '0');
    } else if (word == ".ptr") {
      // What the pointer points to is aligned so, not the parameter; its state space is one more word.
      while (lexer_.Peek().kind == Token::Kind::kDirective) {
        if (lexer_.Take().Is(".align") && !TakeInteger()) return false;
      }
    } else if (const TypeName* type = FindType(word)) {
      declaration->type = type;
    } else {
      return Fail("unknown type " + std::string(word.substr(0, 40)));
    }
    return true;
  }

  bool ParseDeclarationHead(Declaration* declaration) {
    while (lexer_.Peek().kind == Token::Kind::kDirective) {
      if (!ParseDirective(lexer_.Take().text, declaration)) return false;
    }
    return declaration->type != nullptr || Fail("expected a type");
  }

  bool ParseDeclarator(Declaration* declaration) {
    const Token name = lexer_.Take();
    if (name.kind != Token::Kind::kWord) return Fail("expected a name");
    declaration->name = name.text;
    declaration->dimensions.clear();
    while (lexer_.TakeIf("[")) {
      declaration->array = true;
      if (declaration->dimensions.size() == kMaxDimensions) return Fail("too many dimensions");
      if (lexer_.TakeIf("]")) {
        declaration->dimensions.push_back(0);
        continue;
      }
      const auto extent = TakeInteger();
      if (!extent) return false;
      declaration->dimensions.push_back(*extent);
      if (!lexer_.TakeIf("]")) return Fail("expected ]");
    }
    return declaration->TotalBytes().has_value() || Fail("variable too large");
  }

  bool ParseParams(KernelInfo* kernel) {
    if (!lexer_.TakeIf("(")) return true;
    std::uint64_t end = 0;
    while (!lexer_.TakeIf(")")) {
      if (!kernel->params.empty() && !lexer_.TakeIf(",")) return Fail("expected ,");
      if (!lexer_.TakeIf(".param")) return Fail("expected .param");
      Declaration declaration;
      if (!ParseDeclarationHead(&declaration) || !ParseDeclarator(&declaration)) return false;
      const std::uint64_t offset = AlignUp(end, declaration.Alignment());
      end = offset + *declaration.TotalBytes();
      if (end > UINT16_MAX) return Fail("parameters too large");
      kernel->params.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(end - offset)});
    }
    kernel->param_bytes = static_cast<std::uint32_t>(end);
    return true;
  }

  // Up to three extents after .maxntid, .reqntid and .reqnctapercluster; missing ones are 1.
  bool ParseExtents(std::array<std::uint32_t, 3>* extents) {
    *extents = {1, 1, 1};
    for (std::uint32_t& extent : *extents) {
      const auto value = TakeInteger();
      if (!value || *value > UINT32_MAX) return Fail("expected an extent");
      extent = static_cast<std::uint32_t>(*value);
      if (!lexer_.TakeIf(",")) break;
    }
    return true;
  }

  bool ParseEntryDirective(std::string_view word, KernelInfo* kernel) {
    std::array<std::uint32_t, 3> extents{};
    if (word == ".maxntid" || word == ".reqntid") {
      if (!ParseExtents(&extents)) return false;
      std::uint64_t threads = 1;
      for (const std::uint32_t extent : extents) threads = std::min<std::uint64_t>(threads * extent, UINT32_MAX);
      kernel->max_threads = static_cast<std::uint32_t>(threads);
    }
    if (word == ".reqnctapercluster") return ParseExtents(&kernel->required_cluster);
    if (word == ".maxnreg") {
      const auto registers = TakeInteger();
      if (!registers) return false;
      kernel->registers = static_cast<std::uint32_t>(std::min<std::uint64_t>(*registers, 255));
    }
    if (word == ".pragma") return SkipStatement();
    return true;  // others have no meaning here; their numbers are skipped by the caller
  }

  bool ParseEntry(bool external) {
    KernelInfo kernel;
    const Token name = lexer_.Take();
    if (name.kind != Token::Kind::kWord) return Fail("expected a kernel name");
    kernel.name = name.text;
    if (!ParseParams(&kernel)) return false;
    while (!lexer_.Peek().Is("{")) {
      const Token token = lexer_.Take();
      if (token.Is(";")) return true;  // a declaration only
      if (token.kind == Token::Kind::kEnd) return Fail("expected {");
      if (token.kind == Token::Kind::kDirective && !ParseEntryDirective(token.text, &kernel)) return false;
    }
    if (!SkipBraces(&kernel)) return false;
    if (!external) out_.kernels.push_back(std::move(kernel));
    return true;
  }

  bool SkipFunction() {
    while (!lexer_.Peek().Is("{")) {
      const Token token = lexer_.Take();
      if (token.Is(";")) return true;
      if (token.kind == Token::Kind::kEnd) return Fail("expected {");
    }
    return SkipBraces(nullptr);
  }

  // A body; for a kernel its shared and local variables are added up.
  bool SkipBraces(KernelInfo* kernel) {
    std::uint64_t depth = 0;
    // `.local` begins a declaration where a statement begins; in `ld.local.u32` it does not. (A .loc line ends in a
    // number and has no semicolon.)
    bool statement = false;
    do {
      const Token token = lexer_.Take();
      if (token.kind == Token::Kind::kEnd) return Fail("expected }");
      if (token.Is("{")) ++depth;
      if (token.Is("}")) --depth;
      if (kernel != nullptr) {
        if (statement && (token.Is(".shared") || token.Is(".local"))) {
          if (!(token.Is(".shared") ? ParseShared(false, kernel) : ParseLocal(kernel))) return false;
          continue;  // it took its semicolon: the next token begins a statement
        }
        if (token.kind == Token::Kind::kWord) CountUse(token.text, kernel);
      }
      statement =
          token.Is("{") || token.Is("}") || token.Is(";") || token.Is(":") || token.kind == Token::Kind::kNumber;
    } while (depth != 0);
    return true;
  }

  bool ParseLocal(KernelInfo* kernel) {
    Declaration declaration;
    if (!ParseDeclarationHead(&declaration) || !ParseDeclarator(&declaration)) return false;
    const std::uint64_t end = AlignUp(kernel->local_bytes, declaration.Alignment()) + *declaration.TotalBytes();
    if (end > UINT32_MAX) return Fail("too much local memory");
    kernel->local_bytes = static_cast<std::uint32_t>(end);
    return lexer_.TakeIf(";") || Fail("expected ;");
  }

  // Of a kernel's body, or of the module when `kernel` is null.
  bool ParseShared(bool external, KernelInfo* kernel) {
    Declaration declaration;
    if (!ParseDeclarationHead(&declaration)) return false;
    do {
      if (!ParseDeclarator(&declaration)) return false;
      const SharedVariable variable{*declaration.TotalBytes(), declaration.Alignment()};
      if (external) continue;  // the launch's dynamic part
      if (kernel == nullptr) {
        shared_.emplace(declaration.name, variable);
      } else if (!AddShared(variable, kernel)) {
        return false;
      }
    } while (lexer_.TakeIf(","));
    return lexer_.TakeIf(";") || Fail("expected ;");
  }

  bool AddShared(const SharedVariable& variable, KernelInfo* kernel) {
    const std::uint64_t end = AlignUp(kernel->static_shared, variable.alignment) + variable.bytes;
    if (end > UINT32_MAX) return Fail("too much shared memory");
    kernel->static_shared = static_cast<std::uint32_t>(end);
    return true;
  }

  // A shared variable of the module takes part in the kernels that name it.
  void CountUse(std::string_view name, KernelInfo* kernel) {
    const auto found = shared_.find(name);
    if (found == shared_.end() || found->second.counted_for == out_.kernels.size()) return;
    found->second.counted_for = out_.kernels.size();
    const SharedVariable& variable = found->second;
    const std::uint64_t end = AlignUp(kernel->static_shared, variable.alignment) + variable.bytes;
    kernel->static_shared = static_cast<std::uint32_t>(std::min<std::uint64_t>(end, UINT32_MAX));
  }

  bool ParseVariables(GlobalInfo::Space space, bool external) {
    Declaration declaration;
    if (!ParseDeclarationHead(&declaration)) return false;
    do {
      if (!ParseDeclarator(&declaration)) return false;
      GlobalInfo global;
      global.name = declaration.name;
      global.space = declaration.managed ? GlobalInfo::Space::kManaged : space;
      if (lexer_.TakeIf("=") && !ParseInitialiser(&declaration, &global)) return false;
      const auto bytes = declaration.TotalBytes();
      if (!bytes) return Fail("variable too large");
      global.size = *bytes;
      if (global.init.size() > global.size) return Fail("more initial values than elements");
      if (!external) out_.globals.push_back(std::move(global));
    } while (lexer_.TakeIf(","));
    return lexer_.TakeIf(";") || Fail("expected ;");
  }

  bool ParseInitialiser(Declaration* declaration, GlobalInfo* global) {
    const bool counted = !declaration->dimensions.empty() && declaration->dimensions[0] == 0;
    std::uint64_t at = 0;
    if (lexer_.TakeIf("{")) {
      if (!ParseRow(*declaration, 0, &at, global)) return false;
    } else if (!ParseElement(*declaration, &at, global)) {
      return false;
    }
    if (!counted) return true;
    declaration->dimensions[0] = 1;
    const auto row = declaration->TotalBytes();
    if (!row || *row == 0) return Fail("variable too large");
    declaration->dimensions[0] = (at + *row - 1) / *row;
    return true;
  }

  // The bytes of one element of the array at `depth`: of a row of the next dimension.
  std::uint64_t Stride(const Declaration& declaration, std::size_t depth) const {
    std::uint64_t bytes = declaration.ElementBytes();
    for (std::size_t i = depth + 1; i < declaration.dimensions.size(); ++i) bytes *= declaration.dimensions[i];
    return bytes;
  }

  // After `{`. Inner braces are rows, padded with zeros to their full length.
  bool ParseRow(const Declaration& declaration, std::size_t depth, std::uint64_t* at, GlobalInfo* global) {
    if (depth > kMaxDimensions) return Fail("nested too deep");
    while (!lexer_.TakeIf("}")) {
      if (lexer_.TakeIf("{")) {
        const std::uint64_t start = *at;
        if (!ParseRow(declaration, depth + 1, at, global)) return false;
        *at = std::max(*at, start + Stride(declaration, depth));
      } else if (!ParseElement(declaration, at, global)) {
        return false;
      }
      if (!lexer_.TakeIf(",") && !lexer_.Peek().Is("}")) return Fail("expected , or }");
    }
    return true;
  }

  bool ParseElement(const Declaration& declaration, std::uint64_t* at, GlobalInfo* global) {
    const bool negative = lexer_.TakeIf("-");
    std::uint64_t bits = 0;
    const Token token = lexer_.Take();
    if (token.kind == Token::Kind::kNumber) {
      const auto number = ParsePtxNumber(token.text);
      if (!number) return Fail("bad number");
      if (lexer_.Peek().Is("(")) {
        if (!SkipAddress()) return false;  // MASK(symbol): one byte of an address
      } else {
        bits = ElementBits(*number, *declaration.type, negative);
      }
    } else if (token.kind == Token::Kind::kWord) {
      if (!SkipAddress()) return false;  // symbol, generic(symbol), both with an offset
    } else {
      return Fail("bad initial value");
    }
    const std::uint64_t width = declaration.type->bytes;
    if (*at > init_limit_ - width) return Fail("initial values too far apart");
    if (global->init.size() < *at + width) global->init.resize(static_cast<std::size_t>(*at + width));
    std::memcpy(global->init.data() + *at, &bits, static_cast<std::size_t>(std::min<std::uint64_t>(width, 8)));
    *at += width;
    return true;
  }

  bool SkipAddress() {
    if (lexer_.TakeIf("(")) {
      if (lexer_.Take().kind != Token::Kind::kWord) return Fail("expected a symbol");
      if (lexer_.TakeIf("(") && (lexer_.Take().kind != Token::Kind::kWord || !lexer_.TakeIf(")"))) {
        return Fail("expected a symbol");
      }
      if ((lexer_.TakeIf("+") || lexer_.TakeIf("-")) && !TakeInteger()) return false;
      if (!lexer_.TakeIf(")")) return Fail("expected )");
    }
    if (lexer_.TakeIf("+") || lexer_.TakeIf("-")) return TakeInteger().has_value();
    return true;
  }

  static std::uint64_t ElementBits(const PtxNumber& number, const TypeName& type, bool negative) {
    if (number.real == 0) {
      const std::uint64_t value = negative ? ~number.bits + 1 : number.bits;
      if (!type.real || type.bytes < 4) return value;
      const double real = negative ? -static_cast<double>(number.bits) : static_cast<double>(number.bits);
      return type.bytes == 8 ? std::bit_cast<std::uint64_t>(real)
                             : std::bit_cast<std::uint32_t>(static_cast<float>(real));
    }
    if (number.real == 4) return number.bits ^ (negative ? std::uint64_t{1} << 31 : 0);
    const std::uint64_t bits = number.bits ^ (negative ? std::uint64_t{1} << 63 : 0);
    if (type.bytes != 4) return bits;
    return std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
  }

  PtxLexer lexer_;
  Image& out_;
  std::uint64_t init_limit_;
  bool has_target_ = false;
  std::unordered_map<std::string_view, SharedVariable> shared_;
  std::string message_;
};

}  // namespace

bool LooksLikePtx(std::string_view text) { return PtxLexer(text).Peek().Is(".version"); }

ParseStatus ParsePtx(std::string_view text, Image* out, std::string* log) {
  PtxParser parser(text, out);
  if (!parser.Run()) {
    if (log != nullptr) *log = "ptx, " + parser.Message();
    return ParseStatus::kInvalidPtx;
  }
  // Machine code is about as long as its text.
  out->code_bytes = text.size();
  return ParseStatus::kOk;
}

}  // namespace simgpu
