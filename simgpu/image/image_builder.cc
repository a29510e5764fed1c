// SPDX-License-Identifier: Apache-2.0
#include "simgpu/image/image_builder.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <map>

namespace simgpu::test {
namespace {

void PutText(Blob* to, std::string_view text) {
  for (const char c : text) to->push_back(static_cast<std::byte>(c));
}

// Little-endian, `bytes` wide.
void Put(Blob* to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to->push_back(static_cast<std::byte>(value >> (8 * i) & 0xff));
}

struct Section {
  std::string name;
  std::uint32_t type = 1;
  std::uint64_t flags = 0;
  std::uint32_t link = 0;
  std::uint32_t info = 0;
  std::uint64_t declared = 0;  // size of a section without bytes in the file
  Blob bytes;
};

struct Symbol {
  std::string name;
  int type = 0;
  int other = 0;
  std::size_t section = 0;
  std::uint64_t value = 0;
  std::uint64_t size = 0;
};

class Builder {
 public:
  explicit Builder(const CubinSpec& spec) : spec_(spec) {}

  Blob Run() {
    sections_.push_back({});
    sections_[0].type = 0;
    symbols_.push_back({});
    for (const CubinVariable& variable : spec_.variables) AddVariable(variable);
    for (const CubinKernel& kernel : spec_.kernels) AddKernel(kernel);
    sections_.push_back({".nv.info", 0x70000000, 0, 0, 0, 0, module_info_});
    // What the tools leave undefined must not become a variable.
    symbols_.push_back({".nv.reservedSmem.offset0", 1, 0, 0, 0, 4});
    return Assemble();
  }

 private:
  std::size_t SectionNamed(const std::string& name, std::uint32_t type, std::uint64_t flags) {
    for (std::size_t i = 1; i < sections_.size(); ++i) {
      if (sections_[i].name == name) return i;
    }
    sections_.push_back({name, type, flags, 0, 0, 0, {}});
    return sections_.size() - 1;
  }

  void AddVariable(const CubinVariable& variable) {
    const std::map<std::string, std::uint32_t> types = {
        {".nv.global", spec_.relocatable ? 0x70000007 : 8},
        {".nv.global.init", spec_.relocatable ? 0x70000008 : 1},
        {".nv.constant3", spec_.relocatable ? 0x70000067 : 1},
    };
    const std::size_t index = SectionNamed(variable.section, types.at(variable.section), 2);
    Section& section = sections_[index];
    const std::uint64_t at = section.bytes.empty() ? section.declared : section.bytes.size();
    if (variable.section == ".nv.global") {
      section.declared += variable.size;
    } else {
      section.bytes.insert(section.bytes.end(), variable.init.begin(), variable.init.end());
    }
    symbols_.push_back({variable.name, spec_.relocatable ? 13 : 1, variable.managed ? 4 : 0, index, at, variable.size});
  }

  void AddKernel(const CubinKernel& kernel) {
    Section text{".text." + kernel.name, 1, 6, 0, kernel.registers << 24, 0, Blob(128)};
    sections_.push_back(text);
    symbols_.push_back({kernel.name, 2, 0x10, sections_.size() - 1, 0, 128});
    const std::size_t symbol = symbols_.size() - 1;
    if (kernel.shared != 0) {
      sections_.push_back(
          {".nv.shared." + kernel.name, spec_.relocatable ? 0x7000000au : 8u, 3, 0, 0, kernel.shared, {}});
    }
    sections_.push_back({".nv.info." + kernel.name, 0x70000000, 0, 0, 0, 0, KernelInfoRecords(kernel)});
    Record(&module_info_, 0x2f, {symbol, kernel.registers});
    Record(&module_info_, 0x11, {symbol, kernel.frame});
    Record(&module_info_, 0x12, {symbol, kernel.frame});
  }

  static void Record(Blob* to, int attribute, const std::vector<std::uint64_t>& words) {
    Put(to, 4, 1);
    Put(to, static_cast<std::uint64_t>(attribute), 1);
    Put(to, words.size() * 4, 2);
    for (const std::uint64_t word : words) Put(to, word, 4);
  }

  Blob KernelInfoRecords(const CubinKernel& kernel) const {
    Blob info;
    Record(&info, 0x37, {0x87});
    std::uint32_t end = 0;
    for (std::size_t i = kernel.params.size(); i-- > 0;) {
      const ParamInfo& param = kernel.params[i];
      end = std::max(end, param.offset + param.size);
      const std::uint64_t place = i | std::uint64_t{param.offset} << 16;
      if (spec_.wide_params) {
        Record(&info, 0x45, {0, place, param.size});
      } else {
        Record(&info, 0x17, {0, place, std::uint64_t{param.size} << 18 | 0x1f000});
      }
    }
    Put(&info, 3, 1);  // CBANK_PARAM_SIZE
    Put(&info, 0x19, 1);
    Put(&info, end, 2);
    Put(&info, 2, 1);  // a record of a byte, which has no payload either
    Put(&info, 0x4c, 1);
    Put(&info, 1, 2);
    if (kernel.max_threads[0] != 0) {
      Record(&info, 0x05, {kernel.max_threads[0], kernel.max_threads[1], kernel.max_threads[2]});
    }
    return info;
  }

  Blob Assemble() {
    Blob strings{std::byte{0}};
    Blob table;
    for (const Symbol& symbol : symbols_) {
      const bool named = !symbol.name.empty() && (!spec_.one_name || strings.size() == 1);
      Put(&table, symbol.name.empty() ? 0 : named ? strings.size() : 1, 4);
      Put(&table, static_cast<std::uint64_t>(symbol.type), 1);
      Put(&table, static_cast<std::uint64_t>(symbol.other), 1);
      Put(&table, symbol.section, 2);
      Put(&table, symbol.value, 8);
      Put(&table, symbol.size, 8);
      if (named) PutText(&strings, symbol.name + '\0');
    }
    const std::size_t strings_index = sections_.size();
    sections_.push_back({".strtab", 3, 0, 0, 0, 0, strings});
    sections_.push_back({".symtab", 2, 0, static_cast<std::uint32_t>(strings_index), 0, 0, table});
    sections_.push_back({".shstrtab", 3, 0, 0, 0, 0, {}});
    Blob names;
    std::vector<std::size_t> name_at;
    for (const Section& section : sections_) {
      name_at.push_back(names.size());
      PutText(&names, section.name + '\0');
    }
    sections_.back().bytes = names;
    Blob body;
    std::vector<std::size_t> offsets;
    for (const Section& section : sections_) {
      offsets.push_back(64 + body.size());
      body.insert(body.end(), section.bytes.begin(), section.bytes.end());
    }
    Blob file = Header(64 + body.size());
    file.insert(file.end(), body.begin(), body.end());
    for (std::size_t i = 0; i < sections_.size(); ++i) PutSectionHeader(sections_[i], name_at[i], offsets[i], &file);
    return file;
  }

  Blob Header(std::size_t section_offset) const {
    Blob file;
    PutText(&file,
            "\x7f"
            "ELF\x02\x01\x01");
    Put(&file, spec_.old_generation ? 0x33 : 0x41, 1);
    Put(&file, spec_.old_generation ? 7 : 8, 8);
    Put(&file, spec_.relocatable ? 1 : 2, 2);
    Put(&file, 190, 2);
    Put(&file, 1, 4);
    Put(&file, 0, 8);
    Put(&file, 0, 8);
    Put(&file, section_offset, 8);
    const auto sm = static_cast<std::uint64_t>(spec_.sm);
    Put(&file, spec_.old_generation ? sm | sm << 16 | 0x500 : 0x6000004 | sm << 8, 4);
    Put(&file, 64, 2);
    Put(&file, 56, 2);
    Put(&file, 0, 2);
    Put(&file, 64, 2);
    Put(&file, sections_.size(), 2);
    Put(&file, sections_.size() - 1, 2);
    return file;
  }

  static void PutSectionHeader(const Section& section, std::size_t name, std::size_t offset, Blob* file) {
    Put(file, name, 4);
    Put(file, section.type, 4);
    Put(file, section.flags, 8);
    Put(file, 0, 8);
    Put(file, offset, 8);
    Put(file, section.bytes.empty() ? section.declared : section.bytes.size(), 8);
    Put(file, section.link, 4);
    Put(file, section.info, 4);
    Put(file, 1, 8);
    Put(file, 0, 8);
  }

  const CubinSpec& spec_;
  std::vector<Section> sections_;
  std::vector<Symbol> symbols_;
  Blob module_info_;
};

Blob Pack(const Blob& payload, Packing packing) {
  if (packing == Packing::kRaw) return payload;
  Blob packed;
  if (packing == Packing::kZstd) {
    packed.resize(ZSTD_compressBound(payload.size()));
    packed.resize(ZSTD_compress(packed.data(), packed.size(), payload.data(), payload.size(), 3));
    return packed;
  }
  packed.resize(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(payload.size()))));
  const int size =
      LZ4_compress_default(reinterpret_cast<const char*>(payload.data()), reinterpret_cast<char*>(packed.data()),
                           static_cast<int>(payload.size()), static_cast<int>(packed.size()));
  packed.resize(static_cast<std::size_t>(size));
  return packed;
}

}  // namespace

Blob BlobOf(std::string_view text) {
  Blob blob;
  PutText(&blob, text);
  return blob;
}

Blob BuildCubin(const CubinSpec& spec) { return Builder(spec).Run(); }

Blob BuildFatbin(const std::vector<FatbinEntry>& entries) {
  Blob body;
  for (const FatbinEntry& entry : entries) {
    Blob payload = Pack(entry.payload, entry.packing);
    const std::size_t packed = payload.size();
    payload.resize((payload.size() + 7) / 8 * 8);
    const bool raw = entry.packing == Packing::kRaw;
    const std::size_t start = body.size();
    Put(&body, entry.cubin ? 2 : 1, 2);
    Put(&body, 0x101, 2);
    Put(&body, entry.header_bytes, 4);
    Put(&body, payload.size(), 8);
    Put(&body, raw ? 0 : packed, 4);
    Put(&body, 0, 4);
    Put(&body, 0x10008, 4);
    Put(&body, static_cast<std::uint64_t>(entry.sm), 4);
    Put(&body, 0, 8);
    Put(&body, entry.packing == Packing::kLz4 ? 0x2011 : raw ? 0x11 : 0x8011, 8);
    Put(&body, 0, 8);
    Put(&body, raw ? 0 : entry.payload.size(), 8);
    body.resize(start + entry.header_bytes);
    body.insert(body.end(), payload.begin(), payload.end());
  }
  Blob file;
  Put(&file, 0xba55ed50, 4);
  Put(&file, 1, 2);
  Put(&file, 16, 2);
  Put(&file, body.size(), 8);
  file.insert(file.end(), body.begin(), body.end());
  return file;
}

std::size_t BlobSource::Read(std::uint64_t offset, std::span<std::byte> out) {
  if (offset >= blob_.size()) return 0;
  const std::size_t size = std::min<std::size_t>(out.size(), blob_.size() - static_cast<std::size_t>(offset));
  std::copy_n(blob_.begin() + static_cast<std::ptrdiff_t>(offset), size, out.begin());
  return size;
}

}  // namespace simgpu::test
