// SPDX-License-Identifier: Apache-2.0
#include "simgpu/image/cubin_writer.h"

#include "simgpu/image/cubin_format.h"

namespace simgpu {
namespace {

using namespace cubin;

class CubinWriter {
 public:
  explicit CubinWriter(const Image& image) : image_(image) {}

  std::vector<std::byte> Run() {
    symbols_.push_back({});
    AddSection("", 0, 0, {});
    const std::size_t names = AddSection(".shstrtab", kStrtab, 0, {});
    const std::size_t strings = AddSection(".strtab", kStrtab, 0, {});
    const std::size_t symbols = AddSection(".symtab", kSymtab, 0, {});
    strings_.push_back(std::byte{0});
    for (const KernelInfo& kernel : image_.kernels) {
      if (!AddKernel(kernel)) return {};
    }
    AddGlobals();
    AddSection(".nv.info", kNvInfo, 0, std::move(module_info_));
    AddSection(std::string(kCostSection), kProgbits, 0, std::move(costs_));
    sections_[strings].contents = std::move(strings_);
    for (const Symbol& symbol : symbols_) Append(symbol, &sections_[symbols].contents);
    sections_[symbols].header.link = static_cast<std::uint32_t>(strings);
    sections_[symbols].header.entry_size = sizeof(Symbol);
    sections_[names].contents = std::move(section_names_);
    if (sections_.size() > UINT16_MAX) return {};
    return Assemble(names);
  }

 private:
  struct Section {
    SectionHeader header{};
    std::vector<std::byte> contents;
  };

  template <typename T>
  static void Append(const T& value, std::vector<std::byte>* to) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to->insert(to->end(), bytes.begin(), bytes.end());
  }

  static std::uint32_t AppendName(std::string_view name, std::vector<std::byte>* to) {
    const auto at = static_cast<std::uint32_t>(to->size());
    const Bytes bytes = AsBytes(name);
    to->insert(to->end(), bytes.begin(), bytes.end());
    to->push_back(std::byte{0});
    return at;
  }

  std::size_t AddSection(const std::string& name, std::uint32_t type, std::uint64_t flags,
                         std::vector<std::byte> contents) {
    Section& section = sections_.emplace_back();
    section.header.name = AppendName(name, &section_names_);
    section.header.type = type;
    section.header.flags = flags;
    section.header.size = contents.size();
    section.header.alignment = 1;
    section.contents = std::move(contents);
    return sections_.size() - 1;
  }

  std::size_t AddEmptySection(const std::string& name, std::uint32_t type, std::uint64_t size) {
    const std::size_t index = AddSection(name, type, kAllocated, {});
    sections_[index].header.size = size;
    return index;
  }

  static void AppendRecord(std::uint8_t attribute, std::initializer_list<std::uint32_t> words,
                           std::vector<std::byte>* to) {
    Append(kFormatSized, to);
    Append(attribute, to);
    Append(static_cast<std::uint16_t>(words.size() * sizeof(std::uint32_t)), to);
    for (const std::uint32_t word : words) Append(word, to);
  }

  bool AddKernel(const KernelInfo& kernel) {
    if (kernel.param_bytes > UINT16_MAX) return false;
    // The code itself is shared out evenly; nobody reads it.
    const std::size_t code = static_cast<std::size_t>(image_.code_bytes / image_.kernels.size());
    const std::size_t text = AddSection(".text." + kernel.name, kProgbits, kAllocated, std::vector<std::byte>(code));
    AddEmptySection(".nv.shared." + kernel.name, kNobits, kernel.static_shared + ReservedShared());
    std::vector<std::byte> info;
    for (std::size_t i = kernel.params.size(); i-- > 0;) {
      const ParamInfo& param = kernel.params[i];
      if (param.size > UINT16_MAX || i > UINT16_MAX) return false;
      const std::uint32_t place = static_cast<std::uint32_t>(i) | param.offset << 16;
      AppendRecord(kAttrKparamInfoV2, {0, place, param.size}, &info);
    }
    Append(kFormatHalf, &info);
    Append(kAttrCbankParamSize, &info);
    Append(static_cast<std::uint16_t>(kernel.param_bytes), &info);
    if (kernel.max_threads != 0) AppendRecord(kAttrMaxThreads, {kernel.max_threads, 1, 1}, &info);
    const auto& cluster = kernel.required_cluster;
    if (cluster[0] != 0) AppendRecord(kAttrClusterDims, {cluster[0], cluster[1], cluster[2]}, &info);
    AddSection(".nv.info." + kernel.name, kNvInfo, 0, std::move(info));
    const auto symbol = static_cast<std::uint32_t>(symbols_.size());
    AddSymbol(kernel.name, kSymbolFunction, kOtherEntry, text, 0, code);
    AppendRecord(kAttrRegcount, {symbol, kernel.registers}, &module_info_);
    AppendRecord(kAttrFrameSize, {symbol, kernel.local_bytes}, &module_info_);
    const CostRecord cost{symbol, static_cast<std::uint32_t>(kernel.cost.kind), kernel.cost.param,
                          static_cast<std::uint32_t>(kernel.action), kernel.cost.sm_nanos};
    Append(cost, &costs_);
    return true;
  }

  // Constants and initialised variables stand in the file; the others only have their sizes there.
  void AddGlobals() {
    const std::size_t constants = AddSection(".nv.constant3", kProgbits, kAllocated, {});
    const std::size_t initialised = AddSection(".nv.global.init", kProgbits, kAllocated, {});
    const std::size_t zeroed = AddEmptySection(".nv.global", kNobits, 0);
    for (const GlobalInfo& global : image_.globals) {
      const bool constant = global.space == GlobalInfo::Space::kConstant;
      const std::uint8_t other = global.space == GlobalInfo::Space::kManaged ? kOtherManaged : 0;
      if (!constant && global.init.empty()) {
        AddSymbol(global.name, kSymbolObject, other, zeroed, 0, global.size);
        continue;
      }
      const std::size_t index = constant ? constants : initialised;
      std::vector<std::byte>& contents = sections_[index].contents;
      AddSymbol(global.name, kSymbolObject, other, index, contents.size(), global.size);
      contents.insert(contents.end(), global.init.begin(), global.init.end());
      contents.resize(contents.size() + static_cast<std::size_t>(global.size) - global.init.size());
    }
  }

  void AddSymbol(std::string_view name, std::uint8_t type, std::uint8_t other, std::size_t section, std::uint64_t value,
                 std::uint64_t size) {
    constexpr std::uint8_t kGlobalBinding = 1 << 4;
    Symbol symbol{};
    symbol.name = AppendName(name, &strings_);
    symbol.info = static_cast<std::uint8_t>(kGlobalBinding | type);
    symbol.other = other;
    symbol.section = static_cast<std::uint16_t>(section);
    symbol.value = value;
    symbol.size = size;
    symbols_.push_back(symbol);
  }

  std::uint64_t ReservedShared() const {
    return image_.compute_capability >= kFirstReservingCapability ? kReservedShared : 0;
  }

  std::vector<std::byte> Assemble(std::size_t names) {
    std::vector<std::byte> file(sizeof(FileHeader));
    for (Section& section : sections_) {
      section.header.offset = file.size();
      if (!section.contents.empty()) section.header.size = section.contents.size();
      file.insert(file.end(), section.contents.begin(), section.contents.end());
    }
    file.resize((file.size() + 7) / 8 * 8);
    FileHeader header{};
    const std::uint8_t ident[] = {0x7f, 'E', 'L', 'F', 2, 1, 1, kOsabiOfToolkit13, kAbiOfToolkit13};
    std::copy(std::begin(ident), std::end(ident), header.ident);
    header.type = kTypeExecutable;
    header.machine = kMachineCuda;
    header.version = 1;
    header.flags = static_cast<std::uint32_t>(image_.compute_capability & 0xff) << 8;
    header.section_offset = file.size();
    header.header_size = sizeof header;
    header.section_entry_size = sizeof(SectionHeader);
    header.section_count = static_cast<std::uint16_t>(sections_.size());
    header.section_names = static_cast<std::uint16_t>(names);
    std::memcpy(file.data(), &header, sizeof header);
    for (const Section& section : sections_) Append(section.header, &file);
    return file;
  }

  const Image& image_;
  std::vector<Section> sections_;
  std::vector<std::byte> section_names_;
  std::vector<std::byte> strings_;
  std::vector<Symbol> symbols_;
  std::vector<std::byte> module_info_;
  std::vector<std::byte> costs_;
};

// Initial bytes and constants are written out in full.
bool FitsFile(const Image& image) {
  std::uint64_t bytes = image.code_bytes;
  for (const GlobalInfo& global : image.globals) {
    if (global.space == GlobalInfo::Space::kConstant || !global.init.empty()) bytes += global.size;
    if (bytes > kMaxImageBytes / 2) return false;
  }
  return true;
}

}  // namespace

std::vector<std::byte> WriteCubin(const Image& image) {
  return FitsFile(image) ? CubinWriter(image).Run() : std::vector<std::byte>();
}

}  // namespace simgpu
