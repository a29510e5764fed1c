// SPDX-License-Identifier: Apache-2.0
#include "simgpu/image/cubin.h"

#include <string>
#include <unordered_map>

#include "simgpu/image/cubin_format.h"
#include "simgpu/image/cubin_writer.h"

namespace simgpu {
namespace {

using namespace cubin;

// Sections whose bytes are in the file. Others (and kinds nobody knows) may declare sizes that the file does not hold.
bool InFile(std::uint32_t type) {
  return type == kProgbits || type == kSymtab || type == kStrtab || type == kNvInfo || type == kNvGlobalInit ||
         (type >= kNvConstantFirst && type <= kNvConstantLast);
}

bool IsCudaElf(const FileHeader& header) {
  const bool elf64_little = header.ident[0] == 0x7f && header.ident[1] == 'E' && header.ident[2] == 'L' &&
                            header.ident[3] == 'F' && header.ident[4] == 2 && header.ident[5] == 1;
  return elf64_little && header.machine == kMachineCuda &&
         (header.section_count == 0 || header.section_entry_size == sizeof(SectionHeader));
}

int ComputeCapability(const FileHeader& header) {
  const std::uint32_t shift = header.ident[8] >= kAbiOfToolkit13 ? 8 : 0;
  return static_cast<int>((header.flags >> shift) & 0xff);
}

class CubinParser {
 public:
  CubinParser(Bytes file, Image* out) : file_(file), out_(*out), budget_(file.size() * 4 + 65536) {}

  ParseStatus Run() {
    const auto header = LoadAt<FileHeader>(file_, 0);
    if (!header || !IsCudaElf(*header)) return ParseStatus::kInvalidImage;
    out_.kind = ImageKind::kElf;
    out_.compute_capability = ComputeCapability(*header);
    executable_ = header->type == kTypeExecutable;
    const bool ok = ReadSections(*header) && ReadSymbols() && ReadKernelInfo() && ReadModuleInfo() && ReadCosts();
    return ok ? ParseStatus::kOk : ParseStatus::kInvalidImage;
  }

 private:
  struct Section {
    SectionHeader header;
    std::string_view name;
  };

  bool ReadSections(const FileHeader& header) {
    const auto table =
        SliceAt(file_, header.section_offset, std::uint64_t{header.section_count} * sizeof(SectionHeader));
    if (!table) return false;
    sections_.resize(header.section_count);
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      sections_[i].header = *LoadAt<SectionHeader>(*table, i * sizeof(SectionHeader));
    }
    if (sections_.empty()) return true;
    if (header.section_names >= sections_.size()) return false;
    const auto names = Contents(sections_[header.section_names]);
    if (!names) return false;
    for (std::size_t i = 1; i < sections_.size(); ++i) {
      const auto name = StringAt(*names, sections_[i].header.name, &budget_);
      if (!name) return false;
      sections_[i].name = *name;
      by_name_.emplace(*name, i);
      CountCode(sections_[i]);
    }
    return true;
  }

  void CountCode(const Section& section) {
    const bool variable = section.name == ".nv.constant3" || section.name == ".nv.global.init";
    if ((section.header.flags & kAllocated) == 0 || !InFile(section.header.type) || variable) return;
    // Sections may overlap in a hostile file; code is never larger than what holds it.
    out_.code_bytes = std::min<std::uint64_t>(
        file_.size(), out_.code_bytes + std::min<std::uint64_t>(file_.size(), section.header.size));
  }

  std::optional<Bytes> Contents(const Section& section) const {
    return SliceAt(file_, section.header.offset, section.header.size);
  }

  const Section* Find(std::string_view prefix, std::string_view name) {
    key_.assign(prefix).append(name);
    const auto found = by_name_.find(key_);
    return found == by_name_.end() ? nullptr : &sections_[found->second];
  }

  bool ReadSymbols() {
    for (const Section& section : sections_) {
      if (section.header.type != kSymtab) continue;
      if (section.header.link >= sections_.size()) return false;
      const auto table = Contents(section);
      const auto names = Contents(sections_[section.header.link]);
      if (!table || !names) return false;
      for (std::size_t i = 0; i < table->size() / sizeof(Symbol); ++i) {
        if (!ReadSymbol(*LoadAt<Symbol>(*table, i * sizeof(Symbol)), static_cast<std::uint32_t>(i), *names)) {
          return false;
        }
      }
      break;
    }
    return true;
  }

  bool ReadSymbol(const Symbol& symbol, std::uint32_t index, Bytes names) {
    const int type = symbol.info & 0xf;
    // Section numbers from 0xff00 on are reserved marks, 0 is undefined.
    if (symbol.section == 0 || symbol.section >= sections_.size()) return true;
    if (type == kSymbolFunction && (symbol.other & kOtherEntry) != 0) {
      const auto name = StringAt(names, symbol.name, &budget_);
      if (!name || name->empty()) return false;
      kernel_of_symbol_.emplace(index, out_.kernels.size());
      out_.kernels.emplace_back().name = *name;
      return true;
    }
    if (type != kSymbolObject && type != kSymbolNvObject) return true;
    return ReadGlobal(symbol, names);
  }

  bool ReadGlobal(const Symbol& symbol, Bytes names) {
    const Section& section = sections_[symbol.section];
    const bool zero = section.name == ".nv.global";
    const bool constant = section.name == ".nv.constant3";
    if (!zero && !constant && section.name != ".nv.global.init") return true;
    const auto name = StringAt(names, symbol.name, &budget_);
    if (!name || name->empty() || symbol.size > kMaxGlobalBytes) return false;
    GlobalInfo global;
    global.name = *name;
    global.size = symbol.size;
    if (constant) global.space = GlobalInfo::Space::kConstant;
    if ((symbol.other & kOtherManaged) != 0) global.space = GlobalInfo::Space::kManaged;
    if (!zero) {
      const auto contents = Contents(section);
      if (!contents) return false;
      const auto init = SliceAt(*contents, symbol.value, symbol.size);
      if (!init || !budget_.Spend(init->size())) return false;
      global.init.assign(init->begin(), init->end());
    }
    out_.globals.push_back(std::move(global));
    return true;
  }

  bool ReadKernelInfo() {
    for (KernelInfo& kernel : out_.kernels) {
      if (const Section* shared = Find(".nv.shared.", kernel.name)) {
        const bool reserves = executable_ && out_.compute_capability >= kFirstReservingCapability;
        const std::uint64_t size = shared->header.size;
        const std::uint64_t own = reserves ? size - std::min(size, kReservedShared) : size;
        if (own > UINT32_MAX) return false;
        kernel.static_shared = static_cast<std::uint32_t>(own);
      }
      if (const Section* text = Find(".text.", kernel.name)) kernel.registers = text->header.info >> 24;
      const Section* info = Find(".nv.info.", kernel.name);
      if (info == nullptr) continue;
      const auto records = Contents(*info);
      // Several symbols may claim one name, so the records are paid for as if they were copied.
      if (!records || !budget_.Spend(records->size()) || !ReadKernelRecords(*records, &kernel)) return false;
    }
    return true;
  }

  // Calls visit(attribute, format, value, payload) for each record.
  template <typename Visit>
  static bool ForEachRecord(Bytes records, Visit visit) {
    std::uint64_t at = 0;
    while (at < records.size()) {
      const auto format = LoadAt<std::uint8_t>(records, at);
      const auto attribute = LoadAt<std::uint8_t>(records, at + 1);
      const auto value = LoadAt<std::uint16_t>(records, at + 2);
      if (!value) return false;
      at += 4;
      Bytes payload;
      if (*format == kFormatSized) {
        const auto slice = SliceAt(records, at, *value);
        if (!slice) return false;
        payload = *slice;
        at += *value;
      }
      if (!visit(*attribute, *format, *value, payload)) return false;
    }
    return true;
  }

  static bool ReadKernelRecords(Bytes records, KernelInfo* kernel) {
    std::uint32_t bank_bytes = 0;
    std::unordered_map<std::uint16_t, ParamInfo> params;
    const bool ok =
        ForEachRecord(records, [&](std::uint8_t attribute, std::uint8_t format, std::uint16_t value, Bytes payload) {
          if (attribute == kAttrCbankParamSize && format == kFormatHalf) bank_bytes = value;
          if (format != kFormatSized) return true;
          if (attribute == kAttrKparamInfo || attribute == kAttrKparamInfoV2) {
            return ReadParam(payload, attribute == kAttrKparamInfoV2, &params);
          }
          if (attribute == kAttrMaxThreads) return ReadMaxThreads(payload, kernel);
          if (attribute == kAttrClusterDims) return ReadExtents(payload, &kernel->required_cluster);
          return true;
        });
    if (!ok) return false;
    for (std::uint32_t i = 0; i < params.size(); ++i) {
      const auto found = params.find(static_cast<std::uint16_t>(i));
      if (found == params.end() || found->second.offset < kernel->param_bytes) return false;
      kernel->params.push_back(found->second);
      kernel->param_bytes = found->second.offset + found->second.size;
    }
    kernel->param_bytes = std::max(kernel->param_bytes, bank_bytes);
    return true;
  }

  static bool ReadParam(Bytes payload, bool wide, std::unordered_map<std::uint16_t, ParamInfo>* params) {
    const auto ordinal = LoadAt<std::uint16_t>(payload, 4);
    const auto offset = LoadAt<std::uint16_t>(payload, 6);
    const auto packed = LoadAt<std::uint32_t>(payload, 8);
    if (!packed) return false;
    const std::uint32_t size = wide ? *packed & 0xffff : *packed >> 18;
    return params->emplace(*ordinal, ParamInfo{*offset, size}).second;
  }

  static bool ReadExtents(Bytes payload, std::array<std::uint32_t, 3>* extents) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const auto extent = LoadAt<std::uint32_t>(payload, axis * 4);
      if (!extent) return false;
      (*extents)[axis] = *extent;
    }
    return true;
  }

  static bool ReadMaxThreads(Bytes payload, KernelInfo* kernel) {
    std::array<std::uint32_t, 3> extents{};
    if (!ReadExtents(payload, &extents)) return false;
    std::uint64_t threads = 1;
    for (const std::uint32_t extent : extents) threads = std::min<std::uint64_t>(threads * extent, UINT32_MAX);
    kernel->max_threads = static_cast<std::uint32_t>(threads);
    return true;
  }

  // Registers and stack frames of all kernels stand in one section of the module, by symbol number.
  bool ReadModuleInfo() {
    const Section* info = Find(".nv.info", "");
    if (info == nullptr) return true;
    const auto records = Contents(*info);
    return records &&
           ForEachRecord(*records, [&](std::uint8_t attribute, std::uint8_t format, std::uint16_t, Bytes payload) {
             if (format != kFormatSized || (attribute != kAttrRegcount && attribute != kAttrFrameSize)) return true;
             const auto symbol = LoadAt<std::uint32_t>(payload, 0);
             const auto value = LoadAt<std::uint32_t>(payload, 4);
             if (!value) return false;
             const auto kernel = kernel_of_symbol_.find(*symbol);
             if (kernel == kernel_of_symbol_.end()) return true;
             KernelInfo& target = out_.kernels[kernel->second];
             (attribute == kAttrRegcount ? target.registers : target.local_bytes) = *value;
             return true;
           });
  }

  bool ReadCosts() {
    const Section* costs = Find(kCostSection, "");
    if (costs == nullptr) return true;
    const auto records = Contents(*costs);
    if (!records) return false;
    for (std::uint64_t at = 0; at + sizeof(CostRecord) <= records->size(); at += sizeof(CostRecord)) {
      const CostRecord record = *LoadAt<CostRecord>(*records, at);
      const auto kernel = kernel_of_symbol_.find(record.symbol);
      const bool known = record.cost_kind <= static_cast<std::uint32_t>(CostModel::Kind::kParamPerBlock) &&
                         record.action <= static_cast<std::uint32_t>(HostAction::kAdd);
      if (kernel == kernel_of_symbol_.end() || !known) return false;
      KernelInfo& target = out_.kernels[kernel->second];
      target.cost = {static_cast<CostModel::Kind>(record.cost_kind), record.sm_nanos, record.param};
      target.action = static_cast<HostAction>(record.action);
    }
    return true;
  }

  Bytes file_;
  Image& out_;
  Budget budget_;
  bool executable_ = false;
  std::vector<Section> sections_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
  std::unordered_map<std::uint32_t, std::size_t> kernel_of_symbol_;
  std::string key_;
};

}  // namespace

std::optional<std::size_t> CubinBytes(ByteSource& source) {
  FileHeader header;
  if (source.Read(0, std::as_writable_bytes(std::span(&header, 1))) != sizeof header || !IsCudaElf(header)) {
    return std::nullopt;
  }
  const auto reach = [](std::uint64_t offset, std::uint64_t size) {
    return offset > kMaxImageBytes || size > kMaxImageBytes ? kMaxImageBytes + 1 : offset + size;
  };
  std::uint64_t end = sizeof header;
  if (header.program_count != 0) {
    end = std::max(end, reach(header.program_offset, std::uint64_t{header.program_count} * header.program_entry_size));
  }
  const std::uint64_t table_bytes = std::uint64_t{header.section_count} * sizeof(SectionHeader);
  end = std::max(end, reach(header.section_offset, table_bytes));
  if (end > kMaxImageBytes) return std::nullopt;
  std::vector<SectionHeader> sections(header.section_count);
  if (source.Read(header.section_offset, std::as_writable_bytes(std::span(sections))) != table_bytes) {
    return std::nullopt;
  }
  for (const SectionHeader& section : sections) {
    if (InFile(section.type)) end = std::max(end, reach(section.offset, section.size));
  }
  if (end > kMaxImageBytes) return std::nullopt;
  return static_cast<std::size_t>(end);
}

ParseStatus ParseCubin(Bytes file, Image* out) { return CubinParser(file, out).Run(); }

}  // namespace simgpu
